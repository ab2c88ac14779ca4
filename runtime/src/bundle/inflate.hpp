// zlib streams (RFC 1950, 1951) whose length is known beforehand.
#pragma once

#include <cstddef>
#include <string_view>

namespace anoco {

// No stream is larger than this many times its compressed size: one bit for 258 bytes and more.
constexpr size_t kMostInflation = 1032;

// Fills out[0, size) from a whole stream. False where it is damaged, or holds more or less.
bool inflate(std::string_view stream, unsigned char* out, size_t size);

}  // namespace anoco
