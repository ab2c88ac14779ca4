// IEEE binary16 and bfloat16 as 16 bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace ptx {

inline float float_of(uint32_t bits) {
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

inline uint32_t bits_of(float number) {
  uint32_t out;
  std::memcpy(&out, &number, sizeof out);
  return out;
}

struct Half {
  uint16_t bits;
};

struct Bfloat {
  uint16_t bits;
};

inline float wide(Half x) {
  const uint32_t sign = uint32_t(x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  if (rest < 0x400) return (sign != 0 ? -1.0f : 1.0f) * std::ldexp(float(rest), -24);
  const uint32_t exponent = rest < 0x7c00 ? 112 : 224;  // infinity and NaN have the largest
  return float_of(sign | ((rest << 13) + (exponent << 23)));
}

inline float wide(Bfloat x) { return float_of(uint32_t{x.bits} << 16); }

// To the nearest, to even on a tie. The number may carry more digits than a float.
inline Half half_of(double number) {
  if (std::isnan(number)) return {0x7fff};  // the NaN of a device
  const uint16_t sign = std::signbit(number) ? 0x8000 : 0;
  const double size = std::fabs(number);
  if (size >= 65520) return {uint16_t(sign | 0x7c00)};
  int exponent = 0;
  std::frexp(size, &exponent);  // size = m 2^exponent, m in [1/2, 1)
  const int unit = exponent - 11 < -24 ? -24 : exponent - 11;
  const double steps = std::nearbyint(std::ldexp(size, -unit));
  const double rounded = std::ldexp(steps, unit);
  if (rounded < std::ldexp(1.0, -14)) return {uint16_t(sign | uint16_t(std::ldexp(rounded, 24)))};
  std::frexp(rounded, &exponent);
  const auto fraction = uint16_t(std::ldexp(rounded, 11 - exponent));  // 1024 to 2047
  return {uint16_t(sign | ((exponent + 14) << 10) | (fraction & 1023))};
}

inline Bfloat bfloat_of(float number) {
  const uint32_t bits = bits_of(number);
  if (std::isnan(number)) return {0x7fff};
  return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

}  // namespace ptx
