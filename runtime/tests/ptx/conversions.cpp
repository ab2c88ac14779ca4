// cvt: between all types, with the roundings that the kernels use.
#include <cmath>
#include <limits>

#include "half.hpp"
#include "operations.hpp"

namespace ptx {
namespace {

template <class T>
double value_of(T number) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>)
    return double(wide(number));
  else
    return double(number);
}

// To a whole number: to the nearest even, toward zero, down, up; limited to the type, NaN is 0.
enum class Round { even, zero, down, up };

double whole(double x, Round round) {
  switch (round) {
    case Round::even: return std::nearbyint(x);
    case Round::zero: return std::trunc(x);
    case Round::down: return std::floor(x);
    default: return std::ceil(x);
  }
}

template <class D>
D limited(double x) {
  if (std::isnan(x)) return 0;
  if (x <= double(std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
  if (x >= double(std::numeric_limits<D>::max())) return std::numeric_limits<D>::max();
  return D(x);
}

template <class D, class S, Round kRound>
Operation to_whole() {
  return unary<D, S>(Work::convert, [](S a) { return limited<D>(whole(value_of(a), kRound)); });
}

template <class D, class S>
D convert(S a) {
  if constexpr (std::is_same_v<D, Half>)
    return half_of(value_of(a));
  else if constexpr (std::is_same_v<D, Bfloat>)
    return bfloat_of(float(value_of(a)));
  else if constexpr (std::is_same_v<S, Half> || std::is_same_v<S, Bfloat>)
    return D(wide(a));
  else
    return D(a);
}

template <class D, class S>
Operation plain() {
  return unary<D, S>(Work::convert, [](S a) { return convert<D>(a); });
}

// The same from a register of 64 bits, of which S is the lower part.
template <class D, class S>
Operation from_wide() {
  return unary<D, uint64_t>(Work::convert, [](uint64_t a) { return convert<D>(S(a)); });
}

template <class D, class S>
Operation limited_whole() {  // cvt.sat between whole numbers
  return unary<D, S>(Work::convert, [](S a) {
    using Wide = Int128;
    const Wide low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
    return D(Wide(a) < low ? low : Wide(a) > high ? high : Wide(a));
  });
}

// Calls f with each type and its name.
template <class F>
void whole_types(F f) {
  f(uint8_t(), ".u8");
  f(int8_t(), ".s8");
  f(uint16_t(), ".u16");
  f(int16_t(), ".s16");
  f(uint32_t(), ".u32");
  f(int32_t(), ".s32");
  f(uint64_t(), ".u64");
  f(int64_t(), ".s64");
}

template <class F>
void float_types(F f) {
  f(Half(), ".f16");
  f(Bfloat(), ".bf16");
  f(float(), ".f32");
  f(double(), ".f64");
}

// Two floats to one register, the first into its upper half.
template <class Narrow>
uint32_t pack(float high, float low) {
  return uint32_t{convert<Narrow>(high).bits} << 16 | convert<Narrow>(low).bits;
}

uint32_t to_tf32(float x) {  // 10 bits of fraction, ties away from zero
  return (bits_of(x) + 0x1000u) & 0xffffe000u;
}

}  // namespace

void add_conversions(Operations& to) {
  const std::string cvt = "cvt";
  whole_types([&](auto s, const char* source) {
    using S = decltype(s);
    whole_types([&](auto d, const char* target) {
      using D = decltype(d);
      to[cvt + target + source] = plain<D, S>();
      to[cvt + target + source + kOfWide] = from_wide<D, S>();
      to[cvt + ".sat" + target + source] = limited_whole<D, S>();
    });
    float_types([&](auto d, const char* target) {
      to[cvt + ".rn" + target + source] = plain<decltype(d), S>();
      to[cvt + ".rn" + target + source + kOfWide] = from_wide<decltype(d), S>();
    });
  });
  float_types([&](auto s, const char* source) {
    using S = decltype(s);
    whole_types([&](auto d, const char* target) {
      using D = decltype(d);
      to[cvt + ".rni" + target + source] = to_whole<D, S, Round::even>();
      to[cvt + ".rzi" + target + source] = to_whole<D, S, Round::zero>();
      to[cvt + ".rmi" + target + source] = to_whole<D, S, Round::down>();
      to[cvt + ".rpi" + target + source] = to_whole<D, S, Round::up>();
    });
    float_types([&](auto d, const char* target) {
      using D = decltype(d);
      to[cvt + (sizeof(D) < sizeof(S) ? ".rn" : "") + target + source] = plain<D, S>();
    });
  });
  to["cvt.rni.f32.f32"] =
      unary<float, float>(Work::convert, [](float a) { return std::nearbyint(a); });
  to["cvt.rzi.f32.f32"] = unary<float, float>(Work::convert, [](float a) { return std::trunc(a); });
  to["cvt.rmi.f32.f32"] = unary<float, float>(Work::convert, [](float a) { return std::floor(a); });
  to["cvt.rpi.f32.f32"] = unary<float, float>(Work::convert, [](float a) { return std::ceil(a); });
  to["cvt.sat.f32.f32"] = unary<float, float>(Work::convert, [](float a) {
    return a > 1 ? 1.0f : a > 0 ? a : 0.0f;
  });
  to["cvt.rna.tf32.f32"] =
      unary<uint32_t, float>(Work::convert, [](float a) { return to_tf32(a); });
  to["cvt.rn.f16x2.f32"] = binary<uint32_t, float, float>(
      Work::convert, [](float a, float b) { return pack<Half>(a, b); });
  to["cvt.rn.bf16x2.f32"] = binary<uint32_t, float, float>(
      Work::convert, [](float a, float b) { return pack<Bfloat>(a, b); });
}

}  // namespace ptx
