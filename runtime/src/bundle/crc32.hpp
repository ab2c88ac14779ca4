// The checksum of PNG chunks.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace anoco {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t n = 0; n < 256; ++n) {
    uint32_t c = n;
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0xEDB88320 ^ c >> 1 : c >> 1;
    table[n] = c;
  }
  return table;
}

inline uint32_t crc32(std::string_view data) {
  static constexpr auto kTable = make_crc_table();
  uint32_t c = 0xFFFFFFFF;
  for (const char byte : data) c = kTable[(c ^ static_cast<unsigned char>(byte)) & 0xFF] ^ c >> 8;
  return ~c;
}

}  // namespace anoco
