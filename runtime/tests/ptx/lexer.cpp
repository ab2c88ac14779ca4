#include "lexer.hpp"

#include <cctype>

#include "ptx.hpp"

namespace ptx {
namespace {

bool starts_word(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

bool continues_word(char c) {
  return starts_word(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// 12, 0x1F, 0f3F800000 (the bits of a float), 0d3FF0000000000000 (of a double), a U behind.
Token number_at(const std::string& text, size_t& at, uint32_t line) {
  size_t start = at;
  int base = 10;
  if (text[at] == '0' && at + 1 < text.size()) {
    const char kind = text[at + 1];
    const bool bits = kind == 'f' || kind == 'F' || kind == 'd' || kind == 'D';
    if (bits || kind == 'x' || kind == 'X') {
      base = 16;
      start += 2;
    }
  }
  size_t used = 0;
  const uint64_t value = std::stoull(text.substr(start, 24), &used, base);
  at = start + used;
  while (at < text.size() && text[at] == 'U') ++at;
  return {Token::number, "", value, line};
}

}  // namespace

std::vector<Token> tokens_of(const std::string& text, const std::string& file) {
  std::vector<Token> out;
  uint32_t line = 1;
  for (size_t at = 0; at < text.size() && text[at] != 0;) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
    } else if (text.compare(at, 2, "//") == 0) {
      while (at < text.size() && text[at] != '\n') ++at;
    } else if (c == '"') {
      const size_t close = text.find('"', at + 1);
      if (close == std::string::npos)
        throw Fault(file + ", line " + std::to_string(line) + ": a string without an end");
      out.push_back({Token::word, text.substr(at, close + 1 - at), 0, line});
      at = close + 1;
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      out.push_back(number_at(text, at, line));
    } else if (starts_word(c)) {
      const size_t start = at;
      while (at < text.size()) {
        if (text.compare(at, 2, "::") == 0)
          at += 2;
        else if (continues_word(text[at]))
          ++at;
        else
          break;
      }
      out.push_back({Token::word, text.substr(start, at - start), 0, line});
    } else {
      out.push_back({Token::sign, std::string(1, c), 0, line});
      ++at;
    }
  }
  out.push_back({Token::end, "", 0, line});
  return out;
}

}  // namespace ptx
