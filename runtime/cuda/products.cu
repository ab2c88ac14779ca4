// Products of rows with references where cuBLAS computes none.
//
// Of half precision: those of dense rows, and the bank's Gram matrix, with the bits by which
// qr_top2.cu decides, which keeps none of them. Of float32: all, with every sum rounded.
#include "dense.cuh"
#include "gpu_kernels.h"
#include "tensor_tile.cuh"

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, kProductBlocks)
    anoco_products_f16(const half_bits* left, const int* list, const int* count, int first,
                       int room, const half_bits* bank, int refs, int dim, float* products) {
  __shared__ TileStages stages;
  const int rows = list == nullptr ? room : slots(count, first, room);
  const int across = tiles(refs, kTile), work = tiles(rows, kTile) * across;
  for (int item = blockIdx.x; item < work; item += gridDim.x) {
    const int first_slot = item / across * kTile, first_reference = item % across * kTile;
    const auto row = [&](int i) {
      const int slot = first_slot + i;
      return slot >= rows ? -1 : list == nullptr ? slot : list[slot];
    };
    WarpProducts found;
    multiply_halves(left, row, bank, first_reference, refs, dim, stages, found);
#pragma unroll
    for (int m = 0; m < kRowFragments; ++m)
#pragma unroll
      for (int n = 0; n < kColumnFragments; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int slot = first_slot + WarpProducts::row(m, c);
          const int j = first_reference + WarpProducts::reference(n, c);
          if (slot < rows && j < refs) products[(long long)slot * refs + j] = found.at[m][n].at[c];
        }
  }
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, 4)
    anoco_products_f32(const float* left, int rows, const float* bank, int refs, int dim,
                       float* products) {
  __shared__ TileMemory memory;
  const int across = tiles(refs, kTileColumns), work = tiles(rows, kTileRows) * across;
  for (int item = blockIdx.x; item < work; item += gridDim.x) {
    const int first_row = item / across * kTileRows, first = item % across * kTileColumns;
    __syncthreads();  // until all threads are done with the tile before
    if (threadIdx.x < kTileRows) {
      const int row = first_row + threadIdx.x;
      memory.source[threadIdx.x] = row < rows ? row : -1;
    }
    PlainSum sums[kThreadRows][kThreadColumns];
    multiply_tile(left, References<float>{bank, first, refs, dim}, dim, memory, sums);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i)
#pragma unroll
      for (int c = 0; c < kThreadColumns; ++c) {
        const int row = memory.source[thread_row() + i], j = first + thread_column() + c;
        if (row >= 0 && j < refs) products[(long long)row * refs + j] = sums[i][c].value();
      }
  }
}
