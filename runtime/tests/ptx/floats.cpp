// Floating-point numbers, rounded to the nearest one by one. The approximate instructions give the
// rounded result, which a device may miss by a few units.
#include <cmath>

#include "half.hpp"
#include "operations.hpp"

namespace ptx {
namespace {

// The one that is a number; -0 is below 0.
template <class T>
T larger(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  return a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}

template <class T>
T smaller(T a, T b) {
  return -larger(T(-a), T(-b));
}

template <class T>
T or_nan(T a, T b, T result) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : result;
}

template <class T>
void add_type(Operations& to, const std::string& type, Work work) {
  for (const std::string round : {"", ".rn"}) {
    to["add" + round + type] = binary<T, T, T>(
        work, [](T a, T b) { return a + b; }, 1);
    to["sub" + round + type] = binary<T, T, T>(
        work, [](T a, T b) { return a - b; }, 1);
    to["mul" + round + type] = binary<T, T, T>(
        work, [](T a, T b) { return a * b; }, 1);
  }
  for (const char* name : {"fma.rn", "mad.rn"})
    to[name + type] = ternary<T, T, T, T>(
        work, [](T a, T b, T c) { return std::fma(a, b, c); }, 2);
  for (const char* name : {"div.rn", "div.full", "div.approx"})
    to[name + type] = binary<T, T, T>(
        work, [](T a, T b) { return a / b; }, 1);
  for (const char* name : {"rcp.rn", "rcp.approx"})
    to[name + type] = unary<T, T>(
        work, [](T a) { return 1 / a; }, 1);
  for (const char* name : {"sqrt.rn", "sqrt.approx"})
    to[name + type] = unary<T, T>(
        work, [](T a) { return std::sqrt(a); }, 1);
  to["rsqrt.approx" + type] = unary<T, T>(
      work, [](T a) { return T(1 / std::sqrt(double(a))); }, 1);
  to["neg" + type] = unary<T, T>(work, [](T a) { return -a; });
  to["abs" + type] = unary<T, T>(work, [](T a) { return std::fabs(a); });
  to["max" + type] = binary<T, T, T>(work, [](T a, T b) { return larger(a, b); });
  to["min" + type] = binary<T, T, T>(work, [](T a, T b) { return smaller(a, b); });
  to["max.NaN" + type] = binary<T, T, T>(work, [](T a, T b) { return or_nan(a, b, larger(a, b)); });
  to["min.NaN" + type] =
      binary<T, T, T>(work, [](T a, T b) { return or_nan(a, b, smaller(a, b)); });
  to["copysign" + type] = binary<T, T, T>(work, [](T sign, T a) { return std::copysign(a, sign); });
}

void add_approximate(Operations& to) {
  constexpr Work kWork = Work::float32;
  to["ex2.approx.f32"] = unary<float, float>(
      kWork, [](float a) { return std::exp2(a); }, 1);
  to["lg2.approx.f32"] = unary<float, float>(
      kWork, [](float a) { return std::log2(a); }, 1);
  to["sin.approx.f32"] = unary<float, float>(
      kWork, [](float a) { return std::sin(a); }, 1);
  to["cos.approx.f32"] = unary<float, float>(
      kWork, [](float a) { return std::cos(a); }, 1);
  to["tanh.approx.f32"] = unary<float, float>(
      kWork, [](float a) { return std::tanh(a); }, 1);
}

// One number of 16 bits, and two of them in 32.
template <class F>
uint32_t in_pairs(uint32_t a, uint32_t b, uint32_t c, F f) {
  const auto part = [&](int shift) {
    return uint32_t(half_of(f(double(wide(Half{uint16_t(a >> shift)})),
                              double(wide(Half{uint16_t(b >> shift)})),
                              double(wide(Half{uint16_t(c >> shift)}))))
                        .bits)
           << shift;
  };
  return part(0) | part(16);
}

template <class F>
void add_half(Operations& to, const std::string& name, int inputs, F, uint32_t flops) {
  constexpr Work kWork = Work::float16;
  const auto two = [](auto a, auto b) {
    return decltype(a)(in_pairs(uint32_t(a), uint32_t(b), 0u, F()));
  };
  const auto three = [](auto a, auto b, auto c) {
    return decltype(a)(in_pairs(uint32_t(a), uint32_t(b), uint32_t(c), F()));
  };
  using One = uint16_t;
  using Both = uint32_t;
  to[name + ".f16"] = inputs == 2 ? binary<One, One, One>(kWork, two, flops)
                                  : ternary<One, One, One, One>(kWork, three, flops);
  to[name + ".f16x2"] = inputs == 2 ? binary<Both, Both, Both>(kWork, two, 2 * flops)
                                    : ternary<Both, Both, Both, Both>(kWork, three, 2 * flops);
}

}  // namespace

void add_float_operations(Operations& to) {
  add_type<float>(to, ".f32", Work::float32);
  add_type<double>(to, ".f64", Work::float64);
  add_approximate(to);
  for (const std::string round : {"", ".rn"}) {
    add_half(
        to, "add" + round, 2, [](double a, double b, double) { return a + b; }, 1);
    add_half(
        to, "sub" + round, 2, [](double a, double b, double) { return a - b; }, 1);
    add_half(
        to, "mul" + round, 2, [](double a, double b, double) { return a * b; }, 1);
  }
  add_half(
      to, "fma.rn", 3, [](double a, double b, double c) { return std::fma(a, b, c); }, 2);
  add_half(
      to, "max", 2, [](double a, double b, double) { return larger(a, b); }, 0);
  add_half(
      to, "min", 2, [](double a, double b, double) { return smaller(a, b); }, 0);
}

const Operations& operations() {
  static const Operations all = [] {
    Operations made;
    add_integer_operations(made);
    add_bit_operations(made);
    add_float_operations(made);
    add_comparisons(made);
    add_conversions(made);
    return made;
  }();
  return all;
}

}  // namespace ptx
