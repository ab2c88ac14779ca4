// Whole numbers. Overflow wraps; what PTX leaves open (a division by zero) gives all ones.
#include <algorithm>
#include <limits>

#include "operations.hpp"

namespace ptx {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <class T>
using Wide =
    std::conditional_t<sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, Int128, Uint128>,
                       std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

template <class T>
T wrap_add(T a, T b) {
  return T(Unsigned<T>(a) + Unsigned<T>(b));
}
template <class T>
T low_product(T a, T b) {
  return T(uint64_t(a) * uint64_t(b));
}
template <class T>
T high_product(T a, T b) {
  return T(Wide<T>(a) * Wide<T>(b) >> (8 * sizeof(T)));
}
template <class T>
bool overflows(T a, T b) {
  return std::is_signed_v<T> && a == std::numeric_limits<T>::min() && b == T(-1);
}

template <class T>
void add_arithmetic(Operations& to, const std::string& type) {
  constexpr Work kWork = Work::integer;
  const auto two = [&](const char* name, auto f) { to[name + type] = binary<T, T, T>(kWork, f); };
  const auto three = [&](const char* name, auto f) {
    to[name + type] = ternary<T, T, T, T>(kWork, f);
  };
  two("add", [](T a, T b) { return wrap_add(a, b); });
  two("sub", [](T a, T b) { return T(Unsigned<T>(a) - Unsigned<T>(b)); });
  two("mul.lo", [](T a, T b) { return low_product(a, b); });
  two("mul.hi", [](T a, T b) { return high_product(a, b); });
  two("div", [](T a, T b) { return b == 0 ? T(-1) : overflows(a, b) ? a : T(a / b); });
  two("rem", [](T a, T b) { return b == 0 ? T(-1) : overflows(a, b) ? T(0) : T(a % b); });
  two("min", [](T a, T b) { return std::min(a, b); });
  two("max", [](T a, T b) { return std::max(a, b); });
  three("mad.lo", [](T a, T b, T c) { return wrap_add(low_product(a, b), c); });
  three("mad.hi", [](T a, T b, T c) { return wrap_add(high_product(a, b), c); });
  three("sad", [](T a, T b, T c) {
    return wrap_add(c, T(Unsigned<T>(std::max(a, b)) - Unsigned<T>(std::min(a, b))));
  });
  if constexpr (std::is_signed_v<T>) {
    to["neg" + type] = unary<T, T>(kWork, [](T a) { return T(0 - Unsigned<T>(a)); });
    to["abs" + type] = unary<T, T>(kWork, [](T a) { return a < 0 ? T(0 - Unsigned<T>(a)) : a; });
  }
}

// d has twice as many bits as a and b.
template <class T, class D>
void add_wide(Operations& to, const std::string& type) {
  to["mul.wide" + type] = binary<D, T, T>(Work::integer, [](T a, T b) { return D(D(a) * D(b)); });
  to["mad.wide" + type] =
      ternary<D, T, T, D>(Work::integer, [](T a, T b, D c) { return wrap_add(D(D(a) * D(b)), c); });
}

// d = c + the products of four bytes.
template <class A, class B>
void add_dp4a(Operations& to, const std::string& types) {
  using D = std::conditional_t<std::is_signed_v<A> || std::is_signed_v<B>, int32_t, uint32_t>;
  to["dp4a" + types] =
      ternary<D, uint32_t, uint32_t, D>(Work::integer, [](uint32_t a, uint32_t b, D c) {
        for (int k = 0; k < 32; k += 8) c = wrap_add(c, D(D(A(a >> k)) * D(B(b >> k))));
        return c;
      });
}

}  // namespace

void add_integer_operations(Operations& to) {
  add_arithmetic<int16_t>(to, ".s16");
  add_arithmetic<uint16_t>(to, ".u16");
  add_arithmetic<int32_t>(to, ".s32");
  add_arithmetic<uint32_t>(to, ".u32");
  add_arithmetic<int64_t>(to, ".s64");
  add_arithmetic<uint64_t>(to, ".u64");
  add_wide<int16_t, int32_t>(to, ".s16");
  add_wide<uint16_t, uint32_t>(to, ".u16");
  add_wide<int32_t, int64_t>(to, ".s32");
  add_wide<uint32_t, uint64_t>(to, ".u32");
  add_dp4a<int8_t, int8_t>(to, ".s32.s32");
  add_dp4a<uint8_t, uint8_t>(to, ".u32.u32");
  add_dp4a<uint8_t, int8_t>(to, ".u32.s32");
  add_dp4a<int8_t, uint8_t>(to, ".s32.u32");
}

}  // namespace ptx
