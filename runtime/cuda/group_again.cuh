// The products of one query patch with some groups of references once more, by one warp, with the
// bits of qr_top2.cu: the same fragments, added in the same order.
#pragma once

#include "candidates.cuh"
#include "tensor_tile.cuh"

// The two products of a lane with a group: with its references 2 l and 2 l + 1.
struct alignas(8) OwnProducts {
  float at[2];
};

// The products of the query with one reference for every four lanes. The query takes all rows of
// the fragment, so these lanes have all sums.
static __device__ SumFragment fragment_again(const half_bits* q, const half_bits* r, int dim) {
  const int depth = (dim + kStageDepth - 1) / kStageDepth * kStageDepth;
  SumFragment sums = {};
  for (int deep = 0; deep < depth; deep += 16) {
    const int k = deep + threadIdx.x % 4 * 2;
    const unsigned near = load_two(q, k, dim), far = load_two(q, k + 8, dim);
    multiply_add(sums, {{near, near, far, far}}, {{load_two(r, k, dim), load_two(r, k + 8, dim)}});
  }
  return sums;
}

static __device__ OwnProducts products_again(const half_bits* q, const half_bits* bank, int refs,
                                             int dim, int group) {
  const int lane = threadIdx.x % kWarp;
  OwnProducts own = {};
#pragma unroll 1
  for (int n = 0; n < kColumnFragments; ++n) {
    const int reference = min(group * kGroup + 8 * n + lane / 4, refs - 1);
    const SumFragment sums = fragment_again(q, bank + (long long)reference * dim, dim);
    if (n == lane / 4) own = {{sums.at[0], sums.at[1]}};
  }
  return own;
}

// The groups of a query patch that were computed again, each only once.
struct GroupsAgain {
  const half_bits *q, *bank;
  int dim;
  OwnProducts* kept;
  int group;  // whose products are in the place with this lane's number
  int count;

  // Finds the two largest of a group that are below `below`. Returns false if there are no places
  // left. All lanes of a warp must call it, and all of them get the result.
  __device__ bool find(const ProductRow& row, int wanted, Ranked below, Pair& found) {
    if (row.products != nullptr) {
      found = two_largest(row, wanted, below);
      return true;
    }
    const int lane = threadIdx.x % kWarp;
    const unsigned there = __ballot_sync(ANOCO_ALL_LANES, lane < count && group == wanted);
    if (there == 0 && count == ANOCO_GPU_AGAIN) return false;
    OwnProducts own;
    if (there == 0) {
      own = products_again(q, bank, row.refs, dim, wanted);
      kept[count * kWarp + lane] = own;
      if (lane == count) group = wanted;
      ++count;
    } else {
      own = kept[__popc(there - 1) * kWarp + lane];  // one bit is set, that of the place
    }
    TwoLargest largest;
    largest.clear();
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int j = wanted * kGroup + 2 * lane + c;
      if (j >= row.refs) continue;
      const float s = similarity(own.at[c], row.norm, row.r_norm[j]);
      if (ranked(s, j) < below) largest.see(s, j);
    }
    found = largest.of_lanes(kWarp);
    return true;
  }
};
