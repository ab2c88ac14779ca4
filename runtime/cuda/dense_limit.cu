// Section 3, step 2, for dense rows: t_i, the largest similarity of a reference that is not
// consistent with the anchor. It takes the products of the anchors with the references, but only of
// tiles in which some are more similar to the query than all violators that were found so far. How
// many tiles are left out depends on the order of blocks, and the result does not.
#include "dense.cuh"
#include "gpu_kernels.h"
#include "similarity.cuh"
#include "tensor_tile.cuh"

// One dense row, and what references are compared with.
struct DenseRow {
  int anchor;  // -1: there is no such row
  float norm, anchor_norm, best;
  const float *products, *gram;  // gram: of its anchor, if it is kept

  // The rank of the similarity of the row to a reference.
  __device__ unsigned rank(int j, float r_norm) const {
    return rank_of(similarity(products[j], norm, r_norm));
  }
  __device__ bool consistent(float with_anchor, float r_norm) const {
    return similarity(with_anchor, anchor_norm, r_norm) > best;
  }
};

// A part of the list of dense rows.
struct DenseRows {
  const float *products, *q_norm, *r_norm;  // the norms are those of the factors
  const float *bank_norm, *gram;            // bank_norm: of what anchors are multiplied as
  const int* anchor;
  const float* best;
  const int* list;
  int count, packed, refs;
  unsigned* limit;

  // Returns -1 beyond the end of the list.
  __device__ int anchor_of(int slot) const { return slot < count ? anchor[list[slot]] : -1; }

  __device__ DenseRow at(int slot) const {
    if (slot >= count) return {-1, 0, 0, 0, nullptr, nullptr};
    const int row = list[slot], own = anchor[row];
    return {own,
            q_norm[row],
            bank_norm[own],
            best[row],
            products + (long long)(packed ? slot : row) * refs,
            gram == nullptr ? nullptr : gram + (long long)own * refs};
  }
};

// The products of the anchors of kRows rows with kColumns references, and which of them a thread
// has; kLanes neighboring lanes have those of the same rows.
struct PlainTile {
  enum {
    kRows = kTileRows,
    kColumns = kTileColumns,
    kOwnRows = kThreadRows,
    kOwnColumns = kThreadColumns,
    kLanes = kThreadsAcross
  };
  PlainSum sums[kThreadRows][kThreadColumns];

  static __device__ int row(int i) { return thread_row() + i; }
  static __device__ int column(int c) { return thread_column() + c; }
  __device__ float value(int i, int c) const { return sums[i][c].value(); }
  __device__ void multiply(const DenseRows& rows, int slot, const float* bank, int first, int dim,
                           TileMemory& memory) {
    const auto source = [&](int row, int) { return rows.anchor[row]; };
    choose_rows(slot, rows.list, rows.count, rows.packed, source, memory);
    multiply_tile(bank, References<float>{bank, first, rows.refs, dim}, dim, memory, sums);
  }
};

struct TensorTile {
  enum {
    kRows = kTile,
    kColumns = kTile,
    kOwnRows = 2 * kRowFragments,
    kOwnColumns = 2 * kColumnFragments,
    kLanes = 4
  };
  WarpProducts products;

  static __device__ int row(int i) { return WarpProducts::row(i / 2, i % 2 * 2); }
  static __device__ int column(int c) { return WarpProducts::reference(c / 2, c % 2); }
  __device__ float value(int i, int c) const {
    return products.at[i / 2][c / 2].at[i % 2 * 2 + c % 2];
  }
  __device__ void multiply(const DenseRows& rows, int slot, const half_bits* bank, int first,
                           int dim, TileStages& stages) {
    const auto anchor = [&](int i) { return rows.anchor_of(slot + i); };
    multiply_halves(bank, anchor, bank, first, rows.refs, dim, stages, products);
  }
};

// Returns whether a violator in this tile could be the largest of its row; all threads get the same
// answer.
template <class Tile>
static __device__ bool matters(const DenseRows& rows, int slot, int first) {
  bool any = false;
#pragma unroll 1
  for (int i = 0; i < Tile::kOwnRows; ++i) {
    const int own = slot + Tile::row(i);
    const DenseRow row = rows.at(own);
    unsigned level = 0;
    if (row.anchor >= 0 && threadIdx.x % Tile::kLanes == 0) level = atomicMax(rows.limit + own, 0u);
    level = reduce_warp(level, Largest(), Tile::kLanes);
    if (row.anchor < 0) continue;
#pragma unroll
    for (int c = 0; c < Tile::kOwnColumns; ++c) {
      const int j = first + Tile::column(c);
      if (j < rows.refs && j != row.anchor) any |= row.rank(j, rows.r_norm[j]) > level;
    }
  }
  return __syncthreads_count(any) != 0;
}

template <class Tile, class Number, class Memory>
static __device__ void dense_limit(const DenseRows& rows, const Number* bank, int dim,
                                   Memory& memory) {
  const int across = tiles(rows.refs, Tile::kColumns);
  const int work = tiles(rows.count, Tile::kRows) * across;
  for (int item = blockIdx.x; item < work; item += gridDim.x) {
    const int slot = item / across * Tile::kRows, first = item % across * Tile::kColumns;
    if (!matters<Tile>(rows, slot, first)) continue;
    Tile tile;
    if (rows.gram == nullptr) tile.multiply(rows, slot, bank, first, dim, memory);
#pragma unroll
    for (int i = 0; i < Tile::kOwnRows; ++i) {
      const int own = slot + Tile::row(i);
      const DenseRow row = rows.at(own);
      unsigned t = rank_of(-infinity());
#pragma unroll
      for (int c = 0; c < Tile::kOwnColumns; ++c) {
        const int j = first + Tile::column(c);
        if (row.anchor < 0 || j >= rows.refs || j == row.anchor) continue;
        const float with_anchor = row.gram != nullptr ? row.gram[j] : tile.value(i, c);
        if (row.consistent(with_anchor, rows.bank_norm[j])) continue;
        const unsigned s = row.rank(j, rows.r_norm[j]);
        if (s > t) t = s;
      }
      t = reduce_warp(t, Largest(), Tile::kLanes);
      if (row.anchor >= 0 && threadIdx.x % Tile::kLanes == 0) atomicMax(rows.limit + own, t);
    }
  }
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, 4)
    anoco_dense_limit_f32(const float* products, const float* q_factor_norm,
                          const float* r_factor_norm, const float* bank, const float* bank_norm,
                          const float* gram, const int* anchor, const float* best,
                          const int* dense_rows, const int* dense_count, int first, int room,
                          int packed, int refs, int dim, unsigned* limit) {
  __shared__ TileMemory memory;
  const int count = slots(dense_count, first, room);
  const DenseRows rows = {products, q_factor_norm, r_factor_norm, bank_norm, gram, anchor,
                          best,     dense_rows,    count,         packed,    refs, limit};
  dense_limit<PlainTile>(rows, bank, dim, memory);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, kProductBlocks)
    anoco_dense_limit_f16(const float* products, const float* q_factor_norm,
                          const float* r_factor_norm, const half_bits* bank, const float* bank_norm,
                          const float* gram, const int* anchor, const float* best,
                          const int* dense_rows, const int* dense_count, int first, int room,
                          int packed, int refs, int dim, unsigned* limit) {
  __shared__ TileStages stages;
  const int count = slots(dense_count, first, room);
  const DenseRows rows = {products, q_factor_norm, r_factor_norm, bank_norm, gram, anchor,
                          best,     dense_rows,    count,         packed,    refs, limit};
  dense_limit<TensorTile>(rows, bank, dim, stages);
}
