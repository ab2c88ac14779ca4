// The two passes of src/picture/anomaly_map.cpp, one thread per pixel, with the same rounding.
#include "gpu_kernels.h"

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_TILE* ANOCO_GPU_TILE)
    anoco_map_across(const float* grid, const unsigned char* scored, const int* first,
                     const float* weights, int reach, int rows, int cols, int width, float* out) {
  const int x = blockIdx.x * ANOCO_GPU_TILE + threadIdx.x;
  const int row = blockIdx.y * ANOCO_GPU_TILE + threadIdx.y;
  if (x >= width || row >= rows) return;
  const long long patch = (long long)row * cols + first[x];
  weights += (long long)x * reach;
  float sum = 0;
  for (int k = 0; k < reach; ++k)
    if (scored == nullptr || scored[patch + k] != 0)
      sum = __fadd_rn(sum, __fmul_rn(weights[k], grid == nullptr ? 1.0f : grid[patch + k]));
  out[(long long)row * width + x] = sum;
}

static __device__ float weighted_column(const float* column, int width, const float* weights,
                                        int reach) {
  float sum = 0;
  for (int k = 0; k < reach; ++k)
    sum = __fadd_rn(sum, __fmul_rn(weights[k], column[(long long)k * width]));
  return sum;
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_TILE* ANOCO_GPU_TILE)
    anoco_map_down(const float* rows_energy, const float* rows_weight, const unsigned char* scored,
                   const int* first, const float* weights, int reach, int cols, int width,
                   int height, int stride, float* out) {
  const int x = blockIdx.x * ANOCO_GPU_TILE + threadIdx.x;
  const int y = blockIdx.y * ANOCO_GPU_TILE + threadIdx.y;
  if (x >= width || y >= height) return;
  const long long start = (long long)first[y] * width + x;
  weights += (long long)y * reach;
  float sum = weighted_column(rows_energy + start, width, weights, reach);
  if (scored != nullptr && scored[(long long)(y / stride) * cols + x / stride] == 0)
    sum = 0;
  else if (rows_weight != nullptr)  // some patch is not scored, so average without it
    sum = __fdiv_rn(sum, weighted_column(rows_weight + start, width, weights, reach));
  out[(long long)y * width + x] = sum;
}
