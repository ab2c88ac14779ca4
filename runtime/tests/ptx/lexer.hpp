// Cuts PTX into words, numbers and signs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ptx {

struct Token {
  enum Kind { word, number, sign, end } kind;
  std::string text;   // of a word or a sign
  uint64_t bits = 0;  // of a number
  uint32_t line = 0;
};

std::vector<Token> tokens_of(const std::string& text, const std::string& file);

}  // namespace ptx
