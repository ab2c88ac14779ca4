// IEEE binary16 as 16 bits, without the header of the toolkit: a device converts with one
// instruction, the emulation (tests/simt) by arithmetic. `load` reads either type as float32,
// `load_four` four neighboring numbers.
#pragma once

struct half_bits {
  unsigned short bits;
};

#ifdef __CUDACC__
static __device__ __forceinline__ float widen(half_bits x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}

static __device__ __forceinline__ half_bits narrow(float x) {
  half_bits near;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(near.bits) : "f"(x));
  return near;
}
#else
static inline float widen(half_bits x) { return simt::widen(x.bits); }
static inline half_bits narrow(float x) { return {simt::narrow(x)}; }
#endif

static __device__ __forceinline__ float load(const float* x, long long i) { return x[i]; }
static __device__ __forceinline__ float load(const half_bits* x, long long i) {
  return widen(x[i]);
}

struct alignas(16) FourFloats {
  float at[4];
};

struct alignas(8) FourHalves {
  half_bits at[4];
};

static __device__ __forceinline__ FourFloats load_aligned(const float* x) {
  return *(const FourFloats*)x;
}

static __device__ __forceinline__ FourFloats load_aligned(const half_bits* x) {
  const FourHalves near = *(const FourHalves*)x;
  return {{widen(near.at[0]), widen(near.at[1]), widen(near.at[2]), widen(near.at[3])}};
}

// The numbers from `first`, a multiple of 4, on of a row of `dim`; 0 beyond its end. Rows of which
// all begin at a multiple of 4 are read by one instruction.
template <class Number>
static __device__ __forceinline__ FourFloats load_four(const Number* row, int first, int dim) {
  FourFloats four = {{0, 0, 0, 0}};
  if (dim % 4 == 0) {
    if (first < dim) four = load_aligned(row + first);
    return four;
  }
#pragma unroll
  for (int c = 0; c < 4; ++c)
    if (first + c < dim) four.at[c] = load(row, first + c);
  return four;
}
