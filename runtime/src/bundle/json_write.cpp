#include <charconv>
#include <cmath>
#include <utility>

#include "bundle/json.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

void append_string(std::string& out, std::string_view text) {
  static constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  out += '"';
  for (const char c : text) {
    const size_t which = kEscaped.find(c);
    if (which != kEscaped.npos) {
      out += '\\';
      out += kNames[which];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += c < 0x10 ? '0' : '1';
      out += "0123456789abcdef"[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void append(std::string& out, const Json& json, int level);

void new_line(std::string& out, int level) {
  out += '\n';
  out.append(static_cast<size_t>(level), ' ');
}

void append_array(std::string& out, const Json::Array& items, int level) {
  if (items.empty()) {
    out += "[]";
    return;
  }
  char before = '[';
  for (const Json& item : items) {
    out += std::exchange(before, ',');
    new_line(out, level + 1);
    append(out, item, level + 1);
  }
  new_line(out, level);
  out += ']';
}

void append_object(std::string& out, const Json::Object& members, int level) {
  if (members.empty()) {
    out += "{}";
    return;
  }
  char before = '{';
  for (const auto& [key, member] : members) {
    out += std::exchange(before, ',');
    new_line(out, level + 1);
    append_string(out, key);
    out += ": ";
    append(out, member, level + 1);
  }
  new_line(out, level);
  out += '}';
}

void append(std::string& out, const Json& json, int level) {
  if (json.is_null()) out += "null";
  if (const auto* v = json.as<bool>()) out += *v ? "true" : "false";
  if (const auto* v = json.as<int64_t>()) out += std::to_string(*v);
  if (const auto* v = json.as<double>()) out += repr(*v);
  if (const auto* v = json.as<std::string>()) append_string(out, *v);
  if (const auto* v = json.as<Json::Array>()) append_array(out, *v, level);
  if (const auto* v = json.as<Json::Object>()) append_object(out, *v, level);
}

}  // namespace

std::string write_json(const Json& value) {
  std::string out;
  append(out, value, 0);
  return out;
}

std::string repr(double number) {
  if (!std::isfinite(number)) fail(ANOCO_INTERNAL, "JSON has no word for NaN and infinity");
  char text[40];
  const auto written = [&](std::chars_format format) {
    return std::string(text, std::to_chars(text, text + sizeof text, number, format).ptr);
  };
  const std::string scientific = written(std::chars_format::scientific);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const std::string plain = written(std::chars_format::fixed);
  return plain.find('.') == plain.npos ? plain + ".0" : plain;
}

}  // namespace anoco
