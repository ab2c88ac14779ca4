// setp, selp, slct, and predicates.
#include <cmath>

#include "operations.hpp"

namespace ptx {
namespace {

template <class T>
bool unordered(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(a) || std::isnan(b);
  else
    return false;
}

// setp d, a, b and with a boolean operation setp d, a, b, c. Where there is a second result
// (operands[4]) it is the opposite of the comparison.
enum Combine : uint8_t { alone, with_and, with_or, with_xor };

template <class T, class F>
void compare(Warp& warp, const Instruction& i, Lanes lanes) {
  const char *a = warp.in(i.operands[1]), *b = warp.in(i.operands[2]);
  Lanes found = 0;
  if (lanes == kAllLanes)
    for (int l = 0; l < kWarp; ++l) found |= Lanes(F()(get<T>(a, l), get<T>(b, l))) << l;
  else
    each(lanes, [&](int l) { found |= Lanes(F()(get<T>(a, l), get<T>(b, l))) << l; });
  const auto combined = [&](Lanes value) {
    if (i.mode == alone) return value;
    const Lanes c = warp.bits(i.operands[3]);
    return i.mode == with_and ? value & c : i.mode == with_or ? value | c : value ^ c;
  };
  const Lanes first = combined(found), second = combined(~found);
  warp.set_bits(i.operands[0], first, lanes);
  if (i.operands[4].given) warp.set_bits(i.operands[4], second, lanes);
}

template <class T, class F>
Operation comparison(F) {
  return {compare<T, F>, std::string("p") + shape_of<T>() + shape_of<T>() + "p", Work::compare, 0};
}

template <class T>
void add_order(Operations& to, const std::string& type) {
  const auto set = [&](const char* name, auto f) {
    to[std::string("setp") + name + type] = comparison<T>(f);
  };
  set(".eq", [](T a, T b) { return a == b; });
  set(".ne", [](T a, T b) { return !unordered(a, b) && a != b; });
  set(".lt", [](T a, T b) { return a < b; });
  set(".le", [](T a, T b) { return a <= b; });
  set(".gt", [](T a, T b) { return a > b; });
  set(".ge", [](T a, T b) { return a >= b; });
  if constexpr (std::is_unsigned_v<T>) {
    set(".lo", [](T a, T b) { return a < b; });
    set(".ls", [](T a, T b) { return a <= b; });
    set(".hi", [](T a, T b) { return a > b; });
    set(".hs", [](T a, T b) { return a >= b; });
  }
  if constexpr (std::is_floating_point_v<T>) {
    set(".equ", [](T a, T b) { return unordered(a, b) || a == b; });
    set(".neu", [](T a, T b) { return a != b; });
    set(".ltu", [](T a, T b) { return !(a >= b); });
    set(".leu", [](T a, T b) { return !(a > b); });
    set(".gtu", [](T a, T b) { return !(a <= b); });
    set(".geu", [](T a, T b) { return !(a < b); });
    set(".num", [](T a, T b) { return !unordered(a, b); });
    set(".nan", [](T a, T b) { return unordered(a, b); });
  }
}

template <class T>
void select(Warp& warp, const Instruction& i, Lanes lanes) {
  const char *a = warp.in(i.operands[1]), *b = warp.in(i.operands[2]);
  const Lanes choice = warp.bits(i.operands[3]);
  char* d = warp.out(i.operands[0]);
  each(lanes, [&](int l) { put(d, l, (choice >> l & 1u) != 0 ? get<T>(a, l) : get<T>(b, l)); });
}

template <class F>
void predicates(Warp& warp, const Instruction& i, Lanes lanes) {
  const Lanes b = i.operands[2].given ? warp.bits(i.operands[2]) : 0;
  warp.set_bits(i.operands[0], F()(warp.bits(i.operands[1]), b), lanes);
}

template <class F>
Operation on_predicates(const char* shape, F) {
  return {predicates<F>, shape, Work::compare, 0};
}

}  // namespace

void add_comparisons(Operations& to) {
  add_order<int16_t>(to, ".s16");
  add_order<uint16_t>(to, ".u16");
  add_order<uint16_t>(to, ".b16");
  add_order<int32_t>(to, ".s32");
  add_order<uint32_t>(to, ".u32");
  add_order<uint32_t>(to, ".b32");
  add_order<int64_t>(to, ".s64");
  add_order<uint64_t>(to, ".u64");
  add_order<uint64_t>(to, ".b64");
  add_order<float>(to, ".f32");
  add_order<double>(to, ".f64");
  for (const char* type : {".b16", ".u16", ".s16"})
    to[std::string("selp") + type] = {select<uint16_t>, "wwwp", Work::move, 0};
  for (const char* type : {".b32", ".u32", ".s32", ".f32"})
    to[std::string("selp") + type] = {select<uint32_t>, "wwwp", Work::move, 0};
  for (const char* type : {".b64", ".u64", ".s64", ".f64"})
    to[std::string("selp") + type] = {select<uint64_t>, "lllp", Work::move, 0};
  to["and.pred"] = on_predicates("ppp", [](Lanes a, Lanes b) { return a & b; });
  to["or.pred"] = on_predicates("ppp", [](Lanes a, Lanes b) { return a | b; });
  to["xor.pred"] = on_predicates("ppp", [](Lanes a, Lanes b) { return a ^ b; });
  to["not.pred"] = on_predicates("pp", [](Lanes a, Lanes) { return ~a; });
  to["mov.pred"] = on_predicates("pp", [](Lanes a, Lanes) { return a; });
}

}  // namespace ptx
