// IEEE binary16 as 16 bits, without the header of the toolkit: a device converts with one
// instruction, the emulation (tests/simt) by arithmetic. `load` reads either type as float32.
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
