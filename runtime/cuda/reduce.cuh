// Reductions over a warp, and over a block of ANOCO_GPU_BLOCK threads, in an order that depends
// only on the block; every thread gets the result.
#pragma once

#include "gpu_kernels.h"

enum { kWarp = 32, kWarps = ANOCO_GPU_BLOCK / kWarp };
#define ANOCO_ALL_LANES 0xffffffffu

// NVRTC has no <math.h>.
static __device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }
static __device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7fc00000u); }

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Largest {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

template <class T, class Operation>
static __device__ T reduce_warp(T value, Operation operation, int lanes = kWarp) {
  for (int step = lanes / 2; step > 0; step /= 2)
    value = operation(value, __shfl_xor_sync(ANOCO_ALL_LANES, value, step));
  return value;
}

// `scratch` is shared memory for kWarps numbers, which is free again at the next barrier of the
// block.
template <class T, class Operation>
static __device__ T reduce(T value, Operation operation, T* scratch) {
  value = reduce_warp(value, operation);
  __syncthreads();  // until all threads have read the previous result
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = scratch[0];
  for (int w = 1; w < kWarps; ++w) value = operation(value, scratch[w]);
  return value;
}

// A float as a number that is larger if and only if the float is; -0 is 0. NaN has no rank.
static __device__ __forceinline__ unsigned rank_of(float value) {
  const unsigned bits = __float_as_uint(__fadd_rn(value, 0.0f));
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

static __device__ __forceinline__ float value_of(unsigned rank) {
  return __uint_as_float(rank ^ ((rank >> 31) != 0 ? 0x80000000u : 0xffffffffu));
}

// A value and its place as one number: larger values come first, lower places on a tie. 0 stands
// for no value.
typedef unsigned long long Ranked;

static __device__ __forceinline__ Ranked ranked(float value, int place) {
  return (Ranked)rank_of(value) << 32 | (0xffffffffu - (unsigned)place);
}

static __device__ __forceinline__ int place_of(Ranked r) {
  return (int)(0xffffffffu - (unsigned)(r & 0xffffffffu));
}

static __device__ __forceinline__ float value_of(Ranked r) { return value_of((unsigned)(r >> 32)); }
