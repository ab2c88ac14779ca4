// Section 3, step 2: t_i, the largest similarity of a reference that is not consistent with the
// anchor.
#include "gpu_kernels.h"
#include "reduce.cuh"
#include "similarity.cuh"

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_violator(const float* products, const float* anchor_products, int gram,
                   const float* q_norm, const float* r_norm, const int* anchor, const float* best,
                   int rows, int refs, float* limit) {
  __shared__ float scratch[kWarps];
  const int row = blockIdx.x;
  if (row >= rows) return;
  const int own = anchor[row];
  products += (long long)row * refs;
  anchor_products += (long long)(gram != 0 ? own : row) * refs;
  const float norm = q_norm[row], own_norm = r_norm[own], least = best[row];
  float t = -infinity();
#pragma unroll 4
  for (int j = threadIdx.x; j < refs; j += ANOCO_GPU_BLOCK) {
    const float other_norm = r_norm[j];
    const float s = similarity(products[j], norm, other_norm);
    const float a = similarity(anchor_products[j], own_norm, other_norm);
    if (!(a > least) && s > t && j != own) t = s;
  }
  t = reduce(t, Largest(), scratch);
  if (threadIdx.x == 0) limit[row] = t;
}
