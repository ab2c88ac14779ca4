// Section 3, step 1: the reference that is most similar to each query patch, the lowest index on a
// tie.
#include "gpu_kernels.h"
#include "reduce.cuh"
#include "similarity.cuh"

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_anchor(const float* products, const float* q_norm, const float* r_norm, int rows,
                 int refs, int* anchor, float* best) {
  __shared__ Ranked scratch[kWarps];
  const int row = blockIdx.x;
  if (row >= rows) return;
  products += (long long)row * refs;
  const float norm = q_norm[row];
  float most = -infinity();
  int place = -1;
#pragma unroll 4
  for (int j = threadIdx.x; j < refs; j += ANOCO_GPU_BLOCK) {
    const float s = similarity(products[j], norm, r_norm[j]);
    if (s > most) {  // in rising order, so the lowest of equals stays
      most = s;
      place = j;
    }
  }
  const Ranked found = reduce(place < 0 ? (Ranked)0 : ranked(most, place), Largest(), scratch);
  if (threadIdx.x != 0) return;
  anchor[row] = found == 0 ? 0 : place_of(found);
  best[row] =
      // NaN if all are NaN, so that the energy is NaN too.
      found == 0 ? not_a_number() : value_of(found);
}
