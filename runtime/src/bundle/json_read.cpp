#include <algorithm>
#include <charconv>
#include <set>

#include "bundle/bytes.hpp"
#include "bundle/json.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

constexpr int kMostLevels = 64;  // of lists and objects inside each other

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Returns the length of the UTF-8 sequence that `text` begins with, or 0 if it is not valid:
// overlong forms, surrogates and code points beyond U+10FFFF are refused.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

void append_utf8(std::string& out, uint32_t point) {
  const auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    add(point);
  } else if (point < 0x800) {
    add(0xC0 | point >> 6);
    add(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    add(0xE0 | point >> 12);
    add(0x80 | (point >> 6 & 0x3F));
    add(0x80 | (point & 0x3F));
  } else {
    add(0xF0 | point >> 18);
    add(0x80 | (point >> 12 & 0x3F));
    add(0x80 | (point >> 6 & 0x3F));
    add(0x80 | (point & 0x3F));
  }
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Json document() {
    Json found = value(0);
    space();
    if (at_ < text_.size()) refuse("something follows the document");
    return found;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    fail_damaged(name_ + " is not JSON: " + why + ", at byte " + std::to_string(at_));
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char wanted) {
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  void space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }

  Json value(int level) {
    space();
    if (level == kMostLevels && (peek() == '{' || peek() == '[')) refuse("it is nested too deeply");
    if (take('{')) return object(level);
    if (take('[')) return array(level);
    if (peek() == '"') return string();
    if (take("true")) return true;
    if (take("false")) return false;
    if (take("null")) return nullptr;
    if (peek() == '-' || is_digit(peek())) return number();
    refuse(at_ < text_.size() ? "a value is expected" : "it ends too early");
  }

  Json array(int level) {
    Json::Array items;
    space();
    if (take(']')) return items;
    do {
      items.push_back(value(level + 1));
      space();
    } while (take(','));
    if (!take(']')) refuse("',' or ']' is expected");
    return items;
  }

  Json object(int level) {
    Json::Object members;
    std::set<std::string> seen;
    space();
    if (take('}')) return members;
    do {
      space();
      if (peek() != '"') refuse("a key is expected");
      std::string key = string();
      if (!seen.insert(key).second) refuse("the key " + anoco::quoted(key) + " comes twice");
      space();
      if (!take(':')) refuse("':' is expected");
      members.emplace_back(std::move(key), value(level + 1));
      space();
    } while (take(','));
    if (!take('}')) refuse("',' or '}' is expected");
    return members;
  }

  std::string string() {
    std::string out;
    ++at_;  // the quote
    for (;;) {
      if (at_ >= text_.size()) refuse("a string does not end");
      if (take('"')) return out;
      if (take('\\')) {
        escape(out);
        continue;
      }
      if (static_cast<unsigned char>(text_[at_]) < 0x20) refuse("a control character in a string");
      const size_t length = utf8_length(text_.substr(at_));
      if (length == 0) refuse("the text is not UTF-8");
      out += text_.substr(at_, length);
      at_ += length;
    }
  }

  void escape(std::string& out) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const size_t which = at_ < text_.size() ? kNames.find(text_[at_]) : kNames.npos;
    if (which != kNames.npos) {
      ++at_;
      out += kMeant[which];
      return;
    }
    if (!take('u')) refuse("an unknown escape");
    uint32_t point = four_digits();
    if (point >= 0xD800 && point < 0xDC00 && take("\\u")) {
      const uint32_t low = four_digits();
      if (low < 0xDC00 || low > 0xDFFF) refuse("half a surrogate pair");
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    } else if (point >= 0xD800 && point <= 0xDFFF) {
      refuse("half a surrogate pair");
    }
    append_utf8(out, point);
  }

  uint32_t four_digits() {
    uint32_t found = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), found, 16);
    if (digits.size() < 4 || error != std::errc() || end != digits.data() + 4)
      refuse("four hexadecimal digits are expected");
    at_ += 4;
    return found;
  }

  void digits() {
    if (!is_digit(peek())) refuse("a digit is expected");
    while (is_digit(peek())) ++at_;
  }

  Json number() {
    const size_t start = at_;
    bool integer = true;
    take('-');
    if (!take('0')) digits();
    if (take('.')) {
      integer = false;
      digits();
    }
    if (take('e') || take('E')) {
      integer = false;
      if (!take('+')) take('-');
      digits();
    }
    const std::string_view text = text_.substr(start, at_ - start);
    return integer ? Json(convert<int64_t>(text)) : Json(convert<double>(text));
  }

  template <class T>
  T convert(std::string_view text) const {
    T found = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found);
    if (error == std::errc() && end == text.data() + text.size()) return found;
    refuse("a number that neither 64 bits nor a double hold");
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& name) {
  return Reader(text, name).document();
}

Json::Json() = default;
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

const Json* Json::find(std::string_view key) const {
  const Object* members = as<Object>();
  if (members == nullptr) return nullptr;
  const auto found = std::find_if(members->begin(), members->end(),
                                  [&](const auto& member) { return member.first == key; });
  return found == members->end() ? nullptr : &found->second;
}

Json* Json::find(std::string_view key) {
  return const_cast<Json*>(static_cast<const Json*>(this)->find(key));
}

void Json::set(std::string_view key, Json member) {
  if (Json* old = find(key))
    *old = std::move(member);
  else
    std::get<Object>(value).emplace_back(key, std::move(member));
}

}  // namespace anoco
