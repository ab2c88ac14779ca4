// The candidates of a query patch: of each group of kGroup references the two that are most similar
// to it. They come from the products of the patch with all references, which are read once.
#pragma once

#include "gpu_kernels.h"
#include "reduce.cuh"
#include "similarity.cuh"

enum {
  kGroup = ANOCO_GPU_GROUP,
  kGroupLanes = 8  // lanes that share a group
};

// The two largest similarities; 0: there is none.
struct alignas(16) Pair {
  Ranked first, second;
};

// The products of one query patch with the references, or null where they are not kept, and the
// norms of their factors.
struct ProductRow {
  const float *products, *r_norm;
  float norm;
  int refs;

  __device__ float similarity_to(int j) const { return similarity(products[j], norm, r_norm[j]); }
};

// Returns null if the products are not kept.
static __device__ __forceinline__ const float* products_of(const float* products, int row,
                                                           int refs) {
  return products == nullptr ? nullptr : products + (long long)row * refs;
}

static const Ranked kEverything = ~(Ranked)0;

static __device__ __forceinline__ int groups_of(int refs) { return (refs + kGroup - 1) / kGroup; }

// Finds the two largest of what it sees in rising order of places.
struct TwoLargest {
  float first, second;
  int first_place, second_place;

  __device__ void clear() {
    first = second = -infinity();
    first_place = second_place = -1;
  }

  __device__ void see(float s, int j) {
    if (s > first) {  // in rising order, so the lowest of equals stays; NaN is left out
      second = first;
      second_place = first_place;
      first = s;
      first_place = j;
    } else if (s > second) {
      second = s;
      second_place = j;
    }
  }

  // Returns those of so many neighboring lanes, to all of them.
  __device__ Pair of_lanes(int lanes) const {
    Pair pair = {first_place < 0 ? 0 : ranked(first, first_place),
                 second_place < 0 ? 0 : ranked(second, second_place)};
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) {
      const Ranked other = __shfl_xor_sync(ANOCO_ALL_LANES, pair.first, step);
      const Ranked other_second = __shfl_xor_sync(ANOCO_ALL_LANES, pair.second, step);
      const Ranked less = other < pair.first ? other : pair.first;
      const Largest largest;
      pair.second = largest(less, largest(pair.second, other_second));
      pair.first = largest(pair.first, other);
    }
    return pair;
  }
};

// Finds the two largest of a group that are below `below`. Each kGroupLanes lanes of a warp, all of
// which must call it, find those of one group, and all of them get the result.
static __device__ Pair two_largest(const ProductRow& row, int group, Ranked below) {
  TwoLargest found;
  found.clear();
#pragma unroll
  for (int k = 0; k < kGroup; k += kGroupLanes) {
    const int j = group * kGroup + k + threadIdx.x % kGroupLanes;
    if (j >= row.refs) continue;
    const float s = row.similarity_to(j);
    if (below == kEverything || ranked(s, j) < below) found.see(s, j);
  }
  return found.of_lanes(kGroupLanes);
}
