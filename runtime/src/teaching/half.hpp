// Converts float32 to float16 (IEEE binary16) as NumPy rounds: to the nearest, ties to even.
// Numbers that are too large become infinity.
#pragma once

#include <cstdint>
#include <cstring>

namespace anoco {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline uint16_t to_half(float value) {
  constexpr uint32_t kInfinity = 0x7f800000;
  constexpr uint32_t kTooLarge = 0x47800000;     // 2^16
  constexpr uint32_t kLeastNormal = 0x38800000;  // 2^-14
  const uint32_t sign = bits_of(value) >> 16 & 0x8000, size = bits_of(value) & 0x7fffffff;
  uint32_t half = 0;
  if (size > kInfinity) {
    half = 0x7e00;  // NaN
  } else if (size >= kTooLarge) {
    half = 0x7c00;
  } else if (size >= kLeastNormal) {
    // The exponent has another bias; 13 bits are rounded away and may carry into it.
    half = (size - (kLeastNormal - (1u << 23)) + 0xfff + (size >> 13 & 1)) >> 13;
  } else {
    // The smallest float16 is 2^-24, which is also the spacing of float32 between 0.5 and 1.
    float magnitude;
    std::memcpy(&magnitude, &size, sizeof magnitude);
    half = bits_of(magnitude + 0.5f) - bits_of(0.5f);
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace anoco
