// Computes SHA-256, with the processor's own instructions where it has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace anoco {

class Sha256 {
 public:
  Sha256();
  void update(const void* data, size_t size);
  // Returns the 64 hexadecimal digits. Call it once, at the end.
  std::string hex();

 private:
  using Blocks = void (*)(uint32_t* state, const unsigned char* data, size_t blocks);

  Blocks blocks_;
  std::array<uint32_t, 8> state_;
  std::array<unsigned char, 64> rest_;  // bytes that do not fill a block yet
  uint64_t length_ = 0;
};

std::string sha256_hex(std::string_view data);

// For tests: the portable implementation, which runs on processors without such instructions.
void sha256_blocks_portable(uint32_t* state, const unsigned char* data, size_t blocks);

}  // namespace anoco
