// Section 3, step 1: the only pass over Q R^T that every query patch needs.
#include "candidates.cuh"

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_candidates(const float* products, const float* q_norm, const float* r_norm, int rows,
                     int refs, Pair* candidates) {
  const int row = blockIdx.x, groups = groups_of(refs);
  if (row >= rows) return;
  const ProductRow query = {products + (long long)row * refs, r_norm, q_norm[row], refs};
  candidates += (long long)row * groups;
  for (int first = 0; first < groups; first += ANOCO_GPU_BLOCK / kGroupLanes) {
    const int group = first + threadIdx.x / kGroupLanes;
    const Pair pair = two_largest(query, group, kEverything);
    if (group < groups && threadIdx.x % kGroupLanes == 0) candidates[group] = pair;
  }
}
