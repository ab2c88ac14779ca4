// Gathers rows of a table by index, and scatters results to the places that they belong to.
#include "gpu_kernels.h"
#include "half.cuh"

template <class Number>
static __device__ void gather(const Number* from, const int* index, int dim, Number* out) {
  const int row = blockIdx.x, source = index[row];
  if (source < 0) return;
  from += (long long)source * dim;
  out += (long long)row * dim;
  for (int k = threadIdx.x; k < dim; k += ANOCO_GPU_BLOCK) out[k] = from[k];
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_gather_f32(const float* from, const int* index, int rows, int dim, float* out) {
  if ((int)blockIdx.x < rows) gather(from, index, dim, out);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_gather_f16(const half_bits* from, const int* index, int rows, int dim, half_bits* out) {
  if ((int)blockIdx.x < rows) gather(from, index, dim, out);
}

template <class Value>
static __device__ void scatter(const Value* from, const int* index, int rows, Value none,
                               Value* out) {
  const long long i = (long long)blockIdx.x * ANOCO_GPU_BLOCK + threadIdx.x;
  if (i < rows) out[i] = index[i] >= 0 ? from[index[i]] : none;
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_scatter_f32(const float* from, const int* index, int rows, float none, float* out) {
  scatter(from, index, rows, none, out);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_scatter_i32(const int* from, const int* index, int rows, int none, int* out) {
  scatter(from, index, rows, none, out);
}
