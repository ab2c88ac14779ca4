// Decompresses zlib streams (RFC 1950 and 1951) whose decompressed size is known beforehand.
#pragma once

#include <cstddef>
#include <string_view>

namespace anoco {

// A stream expands at most by this factor: one bit can stand for 258 bytes.
constexpr size_t kMostInflation = 1032;

// Fills out[0, size) from a whole stream. Returns false if the stream is damaged, or holds more or
// less.
bool inflate(std::string_view stream, unsigned char* out, size_t size);

}  // namespace anoco
