// Section 3, step 4, for dense rows: the weighted means of the references, as the product of the
// weights with the bank.
#include "dense.cuh"
#include "gpu_kernels.h"
#include "weighted_tile.cuh"

// Numbers of all references as the columns of a tile.
struct Dimensions {
  const float* bank;
  int first, dim;

  static __device__ int column_of(int n) { return n % kTileColumns; }
  static __device__ int depth_of(int n) { return n / kTileColumns; }
  __device__ float operator()(int column, int reference) const {
    return first + column < dim ? bank[(long long)reference * dim + first + column] : 0.0f;
  }
};

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, 4)
    anoco_dense_pull_f32(const float* weights, const float* bank, const int* dense_rows,
                         const int* dense_count, int first, int room, int packed, int refs, int dim,
                         float* mean) {
  __shared__ TileMemory memory;
  const int across = tiles(dim, kTileColumns), count = slots(dense_count, first, room);
  const int work = tiles(count, kTileRows) * across;
  for (int item = blockIdx.x; item < work; item += gridDim.x) {
    const int slot = item / across * kTileRows, first_column = item % across * kTileColumns;
    choose_rows(
        slot, dense_rows, count, packed, [](int, int products) { return products; }, memory);
    CompensatedSum sums[kThreadRows][kThreadColumns];
    multiply_tile(weights, Dimensions{bank, first_column, dim}, refs, memory, sums);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i)
#pragma unroll
      for (int c = 0; c < kThreadColumns; ++c) {
        const int place = thread_row() + i, column = first_column + thread_column() + c;
        if (memory.row[place] >= 0 && column < dim)
          mean[(long long)(slot + place) * dim + column] = sums[i][c].value();
      }
  }
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, 1)
    anoco_dense_pull_f16(const float* weights, const half_bits* bank, const int* dense_rows,
                         const int* dense_count, int first, int room, int packed, int refs, int dim,
                         float* mean) {
  __shared__ WeightedStages stages;
  const int across = tiles(dim, kWeightedColumns), count = slots(dense_count, first, room);
  const int work = tiles(count, kTileRows) * across;
  for (int item = blockIdx.x; item < work; item += gridDim.x) {
    const int slot = item / across * kTileRows, first_column = item % across * kWeightedColumns;
    const int own = slot + WeightedCopies::row();
    const long long row = own >= count ? -1 : packed ? own : dense_rows[own];
    WeightedSums sums;
    add_weighted({row < 0 ? nullptr : weights + row * refs, bank, first_column, refs, dim}, stages,
                 sums);
#pragma unroll
    for (int m = 0; m < kWeightedDown; ++m)
#pragma unroll
      for (int n = 0; n < kWeightedAcross; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int at = slot + WeightedSums::row(m, c);
          const int column = first_column + WeightedSums::column(n, c);
          if (at < count && column < dim) mean[(long long)at * dim + column] = sums.value(m, n, c);
        }
  }
}
