// Section 3, step 3, for dense rows: the weights of all references, in place of the products of the
// row, which are not needed afterwards. They are divided by their sum d, so that nothing overflows
// and every weight is at most 1.
#include "dense.cuh"
#include "energy.cuh"
#include "gpu_kernels.h"
#include "similarity.cuh"

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_dense_weights(float* products, const float* q_norm, const float* r_norm,
                        const float* q_factor_norm, const float* r_factor_norm, const int* anchor,
                        const unsigned* limit, const int* dense_rows, const int* dense_count,
                        int first, int room, int packed, float floor, int refs, double* totals,
                        int* neighbors) {
  __shared__ double scratch[kWarps];
  __shared__ int counts[kWarps];
  const int count = slots(dense_count, first, room);
  for (int slot = blockIdx.x; slot < count; slot += gridDim.x) {
    const int row = dense_rows[slot], own = anchor[row];
    const float t = value_of(limit[slot]), norm = q_norm[row], factor_norm = q_factor_norm[row];
    float* const row_products = products + (long long)(packed ? slot : row) * refs;
    double d = 0;
    int found = 0;
#pragma unroll 4
    for (int j = threadIdx.x; j < refs; j += ANOCO_GPU_BLOCK) {
      const float s = similarity(row_products[j], factor_norm, r_factor_norm[j]);
      const bool is = s > t || j == own;
      const float weight = is ? weight_of(s, floor, norm, r_norm[j]) : 0.0f;
      row_products[j] = weight;
      d += (double)weight;
      found += is;
    }
    d = reduce(d, Sum(), scratch);
    found = reduce(found, Sum(), counts);
    const double shrink = 1 / d;  // no weight that is not 0 is multiplied with infinity
#pragma unroll 4
    for (int j = threadIdx.x; j < refs; j += ANOCO_GPU_BLOCK)
      if (row_products[j] != 0) row_products[j] = (float)((double)row_products[j] * shrink);
    if (threadIdx.x != 0) continue;
    totals[slot] = d;
    neighbors[row] = found;
  }
}
