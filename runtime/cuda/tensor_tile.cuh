// A tile of the products of rows of half precision with references, by tensor cores.
//
// A block takes kTile rows and kTile references, kStageDepth numbers of each at a time: while it
// multiplies one stage, the next two are copied to shared memory. Each warp has the products of
// kWarpRows rows with one group of references, so that what it does with them needs no other warp.
// A product has the same bits wherever it is computed, whatever else is in its tile.
#pragma once

#include "candidates.cuh"
#include "tensor.cuh"

enum {
  kTile = ANOCO_GPU_PRODUCT_TILE,
  kStageDepth = 32,
  kStages = 3,
  kPieces = kStageDepth / kPiece,  // of a row, in a stage
  kWarpsAcross = kTile / kGroup,
  kWarpRows = kTile / (kWarps / kWarpsAcross),
  kRowFragments = kWarpRows / 16,
  kColumnFragments = kGroup / 8,
  kCopied = 2 * kTile * kPieces / ANOCO_GPU_BLOCK  // pieces that a thread copies for a stage
};

// Blocks of a multiprocessor. Capability 7.5 has shared memory for one.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
enum { kProductBlocks = 1 };
#else
enum { kProductBlocks = 2 };
#endif

// Shared memory of a block: pieces of the rows of a tile, then of its references.
struct TileStages {
  Piece at[kStages][2 * kTile][kPieces];
};

// Where a piece of a row lies. The eight rows of a matrix are in eight different places of 16
// bytes, so that they are read at the same time.
static __device__ __forceinline__ int piece_place(int row, int piece) {
  return piece ^ (row / 2 % kPieces);
}

// The products of a warp.
struct WarpProducts {
  SumFragment at[kRowFragments][kColumnFragments];

  // The places in the tile of what `at[m][n].at[c]` is the product of.
  static __device__ int row(int m, int c) {
    return (int)threadIdx.x / kWarp / kWarpsAcross * kWarpRows + 16 * m + c / 2 * 8 +
           threadIdx.x % kWarp / 4;
  }
  static __device__ int reference(int n, int c) {
    return group() * kGroup + 8 * n + threadIdx.x % 4 * 2 + c % 2;
  }
  static __device__ int group() { return threadIdx.x / kWarp % kWarpsAcross; }
};

// The pieces that a thread copies for each stage: of some rows, then of some references.
struct TileCopies {
  const half_bits *left, *bank;
  int rows[kCopied];  // -1: there is none, and zeros take its place
  int dim;

  static __device__ int place_of(int i) {
    return (i * ANOCO_GPU_BLOCK + (int)threadIdx.x) / kPieces;
  }

  __device__ void begin(TileStages& stages, int step) const {
    const int piece = threadIdx.x % kPieces, first = step * kStageDepth + piece * kPiece;
#pragma unroll
    for (int i = 0; i < kCopied; ++i) {
      Piece& to = stages.at[step % kStages][place_of(i)][piece_place(place_of(i), piece)];
      const bool zeros = rows[i] < 0 || first >= dim;
      const half_bits* const from =
          (i < kCopied / 2 ? left : bank) + (zeros ? 0 : (long long)rows[i] * dim + first);
      if (dim % kPiece == 0) {
        copy_async(&to, (const Piece*)from, zeros);
        continue;
      }
#pragma unroll
      for (int k = 0; k < kPiece; ++k) to.at[k].bits = zeros || first + k >= dim ? 0 : from[k].bits;
    }
    commit_copies();
  }
};

static __device__ __forceinline__ void multiply_stage(const Piece (&stage)[2 * kTile][kPieces],
                                                      WarpProducts& products) {
  const int lane = threadIdx.x % kWarp, first_row = WarpProducts::row(0, 0) - lane / 4;
  const int first_reference = kTile + WarpProducts::group() * kGroup;
#pragma unroll
  for (int deep = 0; deep < kPieces; deep += 2) {
    RowFragment a[kRowFragments];
#pragma unroll
    for (int m = 0; m < kRowFragments; ++m) {
      const int row = first_row + 16 * m + lane % 16;
      load_matrices(a[m].at, &stage[row][piece_place(row, deep + lane / 16)]);
    }
#pragma unroll
    for (int n = 0; n < kColumnFragments; n += 2) {
      const int row = first_reference + 8 * n + lane / 16 * 8 + lane % 8;
      unsigned b[4];
      load_matrices(b, &stage[row][piece_place(row, deep + lane / 8 % 2)]);
#pragma unroll
      for (int m = 0; m < kRowFragments; ++m)
#pragma unroll
        for (int side = 0; side < 2; ++side)
          multiply_add(products.at[m][n + side], a[m], {{b[2 * side], b[2 * side + 1]}});
    }
  }
}

// Computes the products of kTile rows of `left`, of which row(i) is the i-th or -1, with the
// references from `first` on. All threads of the block must call it.
template <class Row>
static __device__ void multiply_halves(const half_bits* left, const Row& row, const half_bits* bank,
                                       int first, int refs, int dim, TileStages& stages,
                                       WarpProducts& products) {
  TileCopies copies = {left, bank, {}, dim};
#pragma unroll
  for (int i = 0; i < kCopied; ++i) {
    const int place = TileCopies::place_of(i), j = first + place - kTile;
    copies.rows[i] = i < kCopied / 2 ? row(place) : j < refs ? j : -1;
  }
#pragma unroll
  for (int m = 0; m < kRowFragments; ++m)
#pragma unroll
    for (int n = 0; n < kColumnFragments; ++n) products.at[m][n] = {};
  const int steps = (dim + kStageDepth - 1) / kStageDepth;
  __syncthreads();  // until all threads are done with the tile before
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) copies.begin(stages, step);
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<kStages - 2>();
    __syncthreads();  // until the stage of all threads is there, and none reads the one before
    copies.begin(stages, step + kStages - 1);
    multiply_stage(stages.at[step % kStages], products);
  }
  wait_for_copies<0>();
}
