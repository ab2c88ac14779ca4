// The norm of each row, and whether the row can be scored.
#include "gpu_kernels.h"
#include "half.cuh"
#include "reduce.cuh"

// The squares of allowed norms, 1e-20 to 1e20, fit float32 with room on both sides; what overflows
// or vanishes is not allowed. The limits are slightly wider than those of the CPU (1e-10 to 1e10 in
// float64), so that rounding refuses nothing.
template <class Number>
static __device__ void norms_of(const Number* x, int dim, float* scratch, float* norms, int* bad) {
  const int row = blockIdx.x;
  x += (long long)row * dim;
  float squares = 0;
  for (int k = threadIdx.x; k < dim; k += ANOCO_GPU_BLOCK) {
    const float number = load(x, k);
    squares = fmaf(number, number, squares);
  }
  squares = reduce(squares, Sum(), scratch);
  if (threadIdx.x != 0) return;
  const float norm = sqrtf(squares);
  norms[row] = norm;
  if (!(norm >= 0.99999e-10f && norm <= 1.00001e10f)) atomicMin(bad, row);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_norms_f32(const float* x, int rows, int dim, float* norms, int* bad) {
  __shared__ float scratch[kWarps];
  if ((int)blockIdx.x < rows) norms_of(x, dim, scratch, norms, bad);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_norms_f16(const half_bits* x, int rows, int dim, float* norms, int* bad) {
  __shared__ float scratch[kWarps];
  if ((int)blockIdx.x < rows) norms_of(x, dim, scratch, norms, bad);
}
