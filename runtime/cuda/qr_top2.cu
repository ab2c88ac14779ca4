// Section 3, step 1, in one kernel: the candidates of each query patch, from products that stay in
// the registers of the warp that computed them. Q R^T never reaches memory.
#include "gpu_kernels.h"
#include "tensor_tile.cuh"

enum { kTogether = 4 };  // tiles of rows that share references, which the cache then has

struct TilePlace {
  int first_row, first_reference;
};

// Blocks that run at the same time take few rows and few references.
static __device__ TilePlace place_of_block(int rows, int refs) {
  const int high = (rows + kTile - 1) / kTile, across = (refs + kTile - 1) / kTile;
  const int band = (int)blockIdx.x / (kTogether * across) * kTogether;
  const int within = blockIdx.x - band * across, height = min((int)kTogether, high - band);
  return {(band + within % height) * kTile, within / height * kTile};
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, kProductBlocks)
    anoco_qr_top2_f16(const half_bits* q, const float* q_norm, const half_bits* bank,
                      const float* r_norm, int rows, int refs, int dim, Pair* candidates) {
  __shared__ TileStages stages;
  const TilePlace place = place_of_block(rows, refs);
  const auto query = [&](int i) { return place.first_row + i < rows ? place.first_row + i : -1; };
  WarpProducts products;
  multiply_halves(q, query, bank, place.first_reference, refs, dim, stages, products);
  const int group = place.first_reference / kGroup + WarpProducts::group();
#pragma unroll
  for (int m = 0; m < kRowFragments; ++m)
#pragma unroll
    for (int half = 0; half < 4; half += 2) {
      const int row = place.first_row + WarpProducts::row(m, half);
      const float norm = row < rows ? q_norm[row] : 1.0f;
      TwoLargest found;
      found.clear();
#pragma unroll
      for (int n = 0; n < kColumnFragments; ++n)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int j = place.first_reference + WarpProducts::reference(n, c);
          if (j < refs) found.see(similarity(products.at[m][n].at[half + c], norm, r_norm[j]), j);
        }
      const Pair pair = found.of_lanes(4);
      if (row < rows && group < groups_of(refs) && threadIdx.x % 4 == 0)
        candidates[(long long)row * groups_of(refs) + group] = pair;
    }
}
