// Converts between float32 and binary16, one thread per number.
#include "gpu_kernels.h"
#include "half.cuh"

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_to_half(const float* x, long long count, half_bits* out) {
  const long long i = (long long)blockIdx.x * ANOCO_GPU_BLOCK + threadIdx.x;
  if (i < count) out[i] = narrow(x[i]);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_to_float(const half_bits* x, long long count, float* out) {
  const long long i = (long long)blockIdx.x * ANOCO_GPU_BLOCK + threadIdx.x;
  if (i < count) out[i] = widen(x[i]);
}
