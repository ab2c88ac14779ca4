// Section 3, steps 1 and 2: the anchor and the neighbors of a query patch, one warp per patch.
//
// The largest candidate of all groups is the anchor. Then one reference after the other, in falling
// order of similarity, is compared with the anchor, until the first that is not consistent with it:
// five to seven for most patches. No second matrix product is needed. A patch with more than
// ANOCO_GPU_LISTED neighbors is put on a list and finished by the kernels in dense_*.cu.
#include "candidates.cuh"
#include "group_again.cuh"
#include "half.cuh"

static const Ranked kUnknown = kEverything;

template <class Number>
static __device__ float dot(const Number* a, const Number* b, int dim) {
  float sum = 0;
#pragma unroll 2
  for (int k = 4 * (threadIdx.x % kWarp); k < dim; k += 4 * kWarp) {
    const FourFloats x = load_four(a, k, dim), y = load_four(b, k, dim);
#pragma unroll
    for (int c = 0; c < 4; ++c) sum = fmaf(x.at[c], y.at[c], sum);
  }
  return reduce_warp(sum, Sum());
}

// What has not been taken yet. A lane keeps every kWarp-th group: only it reads and writes their
// candidates, of which `first` is always the largest that is left.
struct Remaining {
  const ProductRow& row;
  GroupsAgain again;
  Pair* candidates;
  Ranked largest;  // of the groups of this lane

  __device__ void look() {
    largest = 0;
    for (int group = threadIdx.x % kWarp; group < groups_of(row.refs); group += kWarp) {
      const Ranked first = candidates[group].first;
      if (first > largest) largest = first;
    }
  }

  __device__ Ranked next() const { return reduce_warp(largest, Largest()); }

  // Takes out the largest of all. If the second of its group has been taken before, the third and
  // the fourth are looked for. Returns false if that was done too often.
  __device__ bool take(Ranked taken) {
    const int group = place_of(taken) / kGroup;
    const bool own = (unsigned)group % kWarp == threadIdx.x % kWarp;
    Ranked second = 0;
    if (own) second = candidates[group].second;
    Pair left = {second, kUnknown};
    if (__ballot_sync(ANOCO_ALL_LANES, second == kUnknown) != 0 &&
        !again.find(row, group, taken, left))
      return false;
    if (own) {
      candidates[group] = left;
      look();
    }
    return true;
  }
};

template <class Number>
struct Walk {
  const Number *q, *bank;
  const float *r_norm, *gram;  // gram null: there is none
  ProductRow row;
  float norm;
  int dim, anchor;
  float best;

  // Both sides of the comparison with `best` come from the same arithmetic: products of the Gram
  // matrix are compared with a product of the tile, both of cuBLAS or both of products.cu, dot
  // products with a dot product, and for dense rows products of tensor cores with one of theirs.
  // Tensor cores cut off where fmaf rounds.
  __device__ void start(Ranked largest) {
    anchor = largest == 0 ? 0 : place_of(largest);
    best = largest == 0      ? not_a_number()  // all are NaN, and so is the energy
           : gram != nullptr ? value_of(largest)
                             : similarity(dot(q, at(anchor), dim), norm, r_norm[anchor]);
  }

  // What the products of dense_limit.cu are compared with. All lanes must call it.
  __device__ float best_of_dense_row() const {
    if constexpr (sizeof(Number) == sizeof(half_bits))
      if (gram == nullptr)
        return similarity(fragment_again(q, at(anchor), dim).at[0], norm, r_norm[anchor]);
    return best;
  }

  __device__ const Number* at(int j) const { return bank + (long long)j * dim; }

  __device__ bool consistent(int j) const {
    const float product =
        gram != nullptr ? gram[(long long)anchor * row.refs + j] : dot(at(anchor), at(j), dim);
    const float* const norms = gram != nullptr ? row.r_norm : r_norm;
    return similarity(product, norms[anchor], norms[j]) > best;
  }

  // Lists the neighbors, the anchor first. Returns how many there are, 0: too many, or too many
  // groups of which more than two are.
  __device__ int collect(Remaining& remaining, Ranked largest, Ranked* listed) const {
    const bool writes = threadIdx.x % kWarp == 0;
    if (writes) listed[0] = ranked(best, anchor);
    if (largest == 0) return 1;
    int count = 1, above = 1;  // how many are listed, and how many of them are above `level`
    float level = value_of(largest);
    for (;;) {
      if (!remaining.take(largest)) return 0;
      largest = remaining.next();
      if (largest == 0) return count;
      if (value_of(largest) < level) {
        level = value_of(largest);
        above = count;
      }
      if (!consistent(place_of(largest))) return above;  // what ties with it is left out
      if (count == ANOCO_GPU_LISTED) return 0;
      if (writes) listed[count] = largest;
      ++count;
    }
  }
};

template <class Number>
static __device__ void walk(const float* products, Pair* candidates, const Number* q,
                            const float* q_norm, const Number* bank, const float* r_norm,
                            const half_bits* q_factors, const float* q_factor_norm,
                            const half_bits* bank_factors, const float* r_factor_norm,
                            const float* gram, int rows, int refs, int dim, int factor_dim,
                            int* anchor, float* best, Ranked* listed, int* neighbors,
                            int* dense_rows, unsigned* limit, int* dense_count,
                            OwnProducts* again) {
  const int row = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (row >= rows) return;
  Walk<Number> walk = {q + (long long)row * dim,
                       bank,
                       r_norm,
                       gram,
                       {products_of(products, row, refs), r_factor_norm, q_factor_norm[row], refs},
                       q_norm[row],
                       dim,
                       0,
                       0};
  const long long place = (long long)row * ANOCO_GPU_AGAIN * kWarp;
  Remaining remaining = {walk.row,
                         {q_factors + (long long)row * factor_dim, bank_factors, factor_dim,
                          products == nullptr ? again + place : nullptr, -1, 0},
                         candidates + (long long)row * groups_of(refs),
                         0};
  remaining.look();
  const Ranked largest = remaining.next();
  walk.start(largest);
  const int count = walk.collect(remaining, largest, listed + (long long)row * ANOCO_GPU_LISTED);
  if (count == 0) walk.best = walk.best_of_dense_row();
  if (threadIdx.x % kWarp != 0) return;
  anchor[row] = walk.anchor;
  best[row] = walk.best;
  neighbors[row] = count;
  if (count > 0) return;
  const int slot = atomicAdd(dense_count, 1);
  dense_rows[slot] = row;
  limit[slot] = rank_of(-infinity());
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, 4)
    anoco_walk_f32(const float* products, Pair* candidates, const float* q, const float* q_norm,
                   const float* bank, const float* r_norm, const half_bits* q_factors,
                   const float* q_factor_norm, const half_bits* bank_factors,
                   const float* r_factor_norm, const float* gram, int rows, int refs, int dim,
                   int factor_dim, int* anchor, float* best, Ranked* listed, int* neighbors,
                   int* dense_rows, unsigned* limit, int* dense_count, OwnProducts* again) {
  walk(products, candidates, q, q_norm, bank, r_norm, q_factors, q_factor_norm, bank_factors,
       r_factor_norm, gram, rows, refs, dim, factor_dim, anchor, best, listed, neighbors,
       dense_rows, limit, dense_count, again);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, 4)
    anoco_walk_f16(const float* products, Pair* candidates, const half_bits* q, const float* q_norm,
                   const half_bits* bank, const float* r_norm, const half_bits* q_factors,
                   const float* q_factor_norm, const half_bits* bank_factors,
                   const float* r_factor_norm, const float* gram, int rows, int refs, int dim,
                   int factor_dim, int* anchor, float* best, Ranked* listed, int* neighbors,
                   int* dense_rows, unsigned* limit, int* dense_count, OwnProducts* again) {
  walk(products, candidates, q, q_norm, bank, r_norm, q_factors, q_factor_norm, bank_factors,
       r_factor_norm, gram, rows, refs, dim, factor_dim, anchor, best, listed, neighbors,
       dense_rows, limit, dense_count, again);
}
