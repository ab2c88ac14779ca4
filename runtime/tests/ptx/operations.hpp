// The instructions that compute: a table from opcodes to functions over the lanes of a warp.
#pragma once

#include <string>
#include <unordered_map>

#include "warp.hpp"

namespace ptx {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

struct Operation {
  void (*run)(Warp&, const Instruction&, Lanes);
  std::string shape;  // of each operand: w 32 bits or less, l 64 bits, p a predicate
  Work work;
  uint32_t flops;
};

using Operations = std::unordered_map<std::string, Operation>;

// Behind the opcode of a cvt whose source is a register of 64 bits and a type of less.
constexpr char kOfWide[] = " of 64 bits";

// All of them, by their full opcode, such as "add.s32".
const Operations& operations();

void add_integer_operations(Operations& to);
void add_bit_operations(Operations& to);
void add_float_operations(Operations& to);
void add_comparisons(Operations& to);
void add_conversions(Operations& to);

template <class T>
constexpr char shape_of() {
  return sizeof(T) == 8 ? 'l' : 'w';
}

template <class D, class A, class F>
void run_unary(Warp& warp, const Instruction& i, Lanes lanes) {
  char* d = warp.out(i.operands[0]);
  const char* a = warp.in(i.operands[1]);
  each(lanes, [&](int l) { put<D>(d, l, F()(get<A>(a, l))); });
}

template <class D, class A, class B, class F>
void run_binary(Warp& warp, const Instruction& i, Lanes lanes) {
  char* d = warp.out(i.operands[0]);
  const char *a = warp.in(i.operands[1]), *b = warp.in(i.operands[2]);
  each(lanes, [&](int l) { put<D>(d, l, F()(get<A>(a, l), get<B>(b, l))); });
}

template <class D, class A, class B, class C, class F>
void run_ternary(Warp& warp, const Instruction& i, Lanes lanes) {
  char* d = warp.out(i.operands[0]);
  const char *a = warp.in(i.operands[1]), *b = warp.in(i.operands[2]), *c = warp.in(i.operands[3]);
  each(lanes, [&](int l) { put<D>(d, l, F()(get<A>(a, l), get<B>(b, l), get<C>(c, l))); });
}

template <class D, class A, class F>
Operation unary(Work work, F, uint32_t flops = 0) {
  return {run_unary<D, A, F>, {shape_of<D>(), shape_of<A>()}, work, flops};
}

template <class D, class A, class B, class F>
Operation binary(Work work, F, uint32_t flops = 0) {
  return {run_binary<D, A, B, F>, {shape_of<D>(), shape_of<A>(), shape_of<B>()}, work, flops};
}

template <class D, class A, class B, class C, class F>
Operation ternary(Work work, F, uint32_t flops = 0) {
  return {run_ternary<D, A, B, C, F>,
          {shape_of<D>(), shape_of<A>(), shape_of<B>(), shape_of<C>()},
          work,
          flops};
}

}  // namespace ptx
