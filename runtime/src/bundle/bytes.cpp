#include "bundle/bytes.hpp"

namespace anoco {

std::string quoted(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      if (c == '\\' || c == '\'') out += '\\';
      out += c;
    }
  }
  return out + "'";
}

}  // namespace anoco
