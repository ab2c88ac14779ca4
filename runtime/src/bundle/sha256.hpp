// SHA-256, with the processor's instructions for it where there are some.
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
  // The 64 hexadecimal digits; to be called once, at the end.
  std::string hex();

 private:
  using Blocks = void (*)(uint32_t* state, const unsigned char* data, size_t blocks);

  Blocks blocks_;
  std::array<uint32_t, 8> state_;
  std::array<unsigned char, 64> rest_;  // what does not fill a block yet
  uint64_t length_ = 0;
};

std::string sha256_hex(std::string_view data);

// For tests: the plain C++ that runs where the processor has no such instructions.
void sha256_blocks_portable(uint32_t* state, const unsigned char* data, size_t blocks);

}  // namespace anoco
