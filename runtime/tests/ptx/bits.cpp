// Bits: logic, shifts, fields, permutations of bytes.
#include <algorithm>

#include "operations.hpp"

namespace ptx {
namespace {

constexpr Work kWork = Work::integer;

template <class T>
void add_logic(Operations& to, const std::string& type) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  to["and" + type] = binary<T, T, T>(kWork, [](T a, T b) { return T(a & b); });
  to["or" + type] = binary<T, T, T>(kWork, [](T a, T b) { return T(a | b); });
  to["xor" + type] = binary<T, T, T>(kWork, [](T a, T b) { return T(a ^ b); });
  to["not" + type] = unary<T, T>(kWork, [](T a) { return T(~a); });
  to["cnot" + type] = unary<T, T>(kWork, [](T a) { return T(a == 0 ? 1 : 0); });
  to["shl" + type] =
      binary<T, T, uint32_t>(kWork, [](T a, uint32_t b) { return b >= kBits ? T(0) : T(a << b); });
}

template <class T>
void add_right_shift(Operations& to, const std::string& type) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  to["shr" + type] = binary<T, T, uint32_t>(
      kWork, [](T a, uint32_t b) { return b >= kBits ? T(a < 0 ? -1 : 0) : T(a >> b); });
}

// The position of the highest bit that differs from the sign.
template <class T>
void add_find(Operations& to, const std::string& type) {
  to["bfind" + type] = unary<uint32_t, T>(kWork, [](T a) {
    const uint64_t bits = uint64_t(a < 0 ? T(~a) : a);
    return bits == 0 ? ~0u : uint32_t(63 - __builtin_clzll(bits));
  });
}

template <class T>
void add_extract(Operations& to, const std::string& type) {
  to["bfe" + type] =
      ternary<T, T, uint32_t, uint32_t>(kWork, [](T a, uint32_t start, uint32_t count) {
        constexpr uint32_t kBits = 8 * sizeof(T);
        start &= 255;
        count &= 255;
        if (count == 0) return T(0);
        const uint32_t top = std::min(start + count, kBits) - 1;  // where the sign is
        const bool filled = std::is_signed_v<T> && (a >> top & 1) != 0;
        T out = T(filled ? -1 : 0);
        for (uint32_t k = 0; k < count && k < kBits && start + k < kBits; ++k) {
          const T bit = T(T(1) << k);
          out = T((a >> (start + k) & 1) != 0 ? out | bit : out & T(~bit));
        }
        return out;
      });
}

template <class T>
void add_fields(Operations& to, const std::string& type) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  to["popc" + type] =
      unary<uint32_t, T>(kWork, [](T a) { return uint32_t(__builtin_popcountll(a)); });
  to["clz" + type] = unary<uint32_t, T>(
      kWork, [](T a) { return a == 0 ? kBits : uint32_t(__builtin_clzll(a)) - (64 - kBits); });
  to["brev" + type] = unary<T, T>(kWork, [](T a) {
    T out = 0;
    for (uint32_t k = 0; k < kBits; ++k) out = T(out << 1 | (a >> k & 1));
    return out;
  });
}

// bfi d, a, b, start, count: a put into b.
template <class T>
void insert(Warp& warp, const Instruction& i, Lanes lanes) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  each(lanes, [&](int l) {
    const T a = get<T>(warp.in(i.operands[1]), l), b = get<T>(warp.in(i.operands[2]), l);
    const uint32_t start = get<uint32_t>(warp.in(i.operands[3]), l) & 255;
    const uint32_t count = get<uint32_t>(warp.in(i.operands[4]), l) & 255;
    T out = b;
    for (uint32_t k = 0; k < count && start + k < kBits; ++k) {
      const T bit = T(T(1) << (start + k));
      out = (a >> k & 1) != 0 ? out | bit : out & ~bit;
    }
    put(warp.out(i.operands[0]), l, out);
  });
}

// Every bit of d by a table with one entry for the bits of a, b and c.
void look_up(Warp& warp, const Instruction& i, Lanes lanes) {
  each(lanes, [&](int l) {
    const auto in = [&](int k) { return get<uint32_t>(warp.in(i.operands[k]), l); };
    const uint32_t a = in(1), b = in(2), c = in(3), table = in(4);
    uint32_t out = 0;
    for (uint32_t k = 0; k < 8; ++k)
      if ((table >> k & 1) != 0)
        out |= ((k & 4) != 0 ? a : ~a) & ((k & 2) != 0 ? b : ~b) & ((k & 1) != 0 ? c : ~c);
    put(warp.out(i.operands[0]), l, out);
  });
}

template <bool kLeft, bool kClamp>
uint32_t funnel(uint32_t low, uint32_t high, uint32_t by) {
  const uint32_t n = kClamp ? std::min(by, 32u) : by & 31;
  const uint64_t both = uint64_t{high} << 32 | low;
  return kLeft ? uint32_t(both << n >> 32) : uint32_t(both >> n);
}

template <bool kLeft, bool kClamp>
Operation funnel_shift() {
  return ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      kWork, [](uint32_t a, uint32_t b, uint32_t c) { return funnel<kLeft, kClamp>(a, b, c); });
}

uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t choice = selector >> (4 * k) & 15;
    uint32_t byte = uint32_t(bytes >> (8 * (choice & 7))) & 255;
    if ((choice & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    out |= byte << (8 * k);
  }
  return out;
}

}  // namespace

void add_bit_operations(Operations& to) {
  add_logic<uint16_t>(to, ".b16");
  add_logic<uint32_t>(to, ".b32");
  add_logic<uint64_t>(to, ".b64");
  add_right_shift<uint16_t>(to, ".b16");
  add_right_shift<uint32_t>(to, ".b32");
  add_right_shift<uint64_t>(to, ".b64");
  add_right_shift<uint16_t>(to, ".u16");
  add_right_shift<uint32_t>(to, ".u32");
  add_right_shift<uint64_t>(to, ".u64");
  add_right_shift<int16_t>(to, ".s16");
  add_right_shift<int32_t>(to, ".s32");
  add_right_shift<int64_t>(to, ".s64");
  add_find<uint32_t>(to, ".u32");
  add_find<int32_t>(to, ".s32");
  add_find<uint64_t>(to, ".u64");
  add_find<int64_t>(to, ".s64");
  add_extract<uint32_t>(to, ".u32");
  add_extract<int32_t>(to, ".s32");
  add_extract<uint64_t>(to, ".u64");
  add_extract<int64_t>(to, ".s64");
  add_fields<uint32_t>(to, ".b32");
  add_fields<uint64_t>(to, ".b64");
  to["bfi.b32"] = {insert<uint32_t>, "wwwww", kWork, 0};
  to["bfi.b64"] = {insert<uint64_t>, "lllww", kWork, 0};
  to["lop3.b32"] = {look_up, "wwwww", kWork, 0};
  to["shf.l.wrap.b32"] = funnel_shift<true, false>();
  to["shf.l.clamp.b32"] = funnel_shift<true, true>();
  to["shf.r.wrap.b32"] = funnel_shift<false, false>();
  to["shf.r.clamp.b32"] = funnel_shift<false, true>();
  to["prmt.b32"] = ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      kWork, [](uint32_t a, uint32_t b, uint32_t c) { return permute(a, b, c); });
}

}  // namespace ptx
