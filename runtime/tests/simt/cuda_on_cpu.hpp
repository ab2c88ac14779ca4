// What a .cu file sees in place of CUDA's headers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "teaching/half.hpp"
#include "tensor_on_cpu.hpp"

#define __global__
#define __device__
#define __launch_bounds__(...)
#define __forceinline__ inline
// This section is filled before each block; AddressSanitizer guards only variables without a
// section.
#ifdef __SANITIZE_ADDRESS__
#define __shared__ static
#else
#define __shared__ __attribute__((section("simt_shared"))) static
#endif

namespace simt {

struct Place {
  unsigned x, y, z;
};

constexpr int kWarp = 32;

// The lanes of `mask` meet: each gives a value and sees those of all. The values are valid until
// the next meeting.
const uint64_t* meet(const char* what, unsigned mask, uint64_t value, int line);

// All threads of the block meet; returns for how many `vote` holds.
int meet_block(const char* what, bool vote, int line);

int lane();
int thread();             // of the block
unsigned block_number();  // how many blocks were run before

template <class To, class From>
To bits_of(From from) {
  static_assert(sizeof(To) >= sizeof(From), "no bit is lost");
  To to{};
  std::memcpy(&to, &from, sizeof(From));
  return to;
}

template <class T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline float widen(uint16_t half) {
  const unsigned sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
  if (rest < 0x400) return (sign != 0 ? -1.0f : 1.0f) * std::ldexp(float(rest), -24);
  const unsigned exponent =
      rest < 0x7c00 ? 112 : 224;  // infinity and NaN have the largest there is
  return bits_of<float>(sign | ((rest << 13) + (exponent << 23)));
}

inline uint16_t narrow(float number) { return anoco::to_half(number); }

}  // namespace simt

extern simt::Place threadIdx, blockIdx, blockDim, gridDim;

inline void __syncthreads(int line = __builtin_LINE()) {
  simt::meet_block("__syncthreads", false, line);
}

inline int __syncthreads_count(int vote, int line = __builtin_LINE()) {
  return simt::meet_block("__syncthreads_count", vote != 0, line);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int line = __builtin_LINE()) {
  const uint64_t* values =
      simt::meet("__shfl_xor_sync", mask, simt::bits_of<uint64_t>(value), line);
  return simt::from_bits<T>(values[(simt::lane() ^ lanes) % simt::kWarp]);
}

inline unsigned __ballot_sync(unsigned mask, int vote, int line = __builtin_LINE()) {
  const uint64_t* values = simt::meet("__ballot_sync", mask, vote != 0, line);
  unsigned votes = 0;
  for (int k = 0; k < simt::kWarp; ++k)
    if ((mask >> k & 1u) != 0 && values[k] != 0) votes |= 1u << k;
  return votes;
}

namespace simt {

// Other threads of the kernel may do the same at any time, which ThreadSanitizer has to know.
template <class T, class Change>
T change(T* at, Change&& change) {
  T before = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(at, &before, change(before), false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return before;
}

}  // namespace simt

inline int atomicMin(int* at, int value) {
  return simt::change(at, [&](int before) { return std::min(before, value); });
}

inline unsigned atomicMax(unsigned* at, unsigned value) {
  return simt::change(at, [&](unsigned before) { return std::max(before, value); });
}

inline int atomicAdd(int* at, int value) {
  return simt::change(at, [&](int before) { return before + value; });
}

using std::max;
using std::min;

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned __float_as_uint(float x) { return simt::bits_of<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return simt::bits_of<float>(x); }

// Operations are rounded one by one, because this is compiled with -ffp-contract=off.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
