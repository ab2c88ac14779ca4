// A tile of weighted sums of references of half precision, by tensor cores.
//
// A weight is split into two numbers of half precision, of which the second is what the first
// leaves: together they have 22 bits. Weights are at most 1, so one power of two brings all of them
// to where half precision has its bits. Each kSummed references, what the tensor cores have added
// up goes to a sum with its rounding error beside it.
//
// A block takes kTileRows rows and kWeightedColumns numbers of kStageDepth references at a time.
// While it multiplies one stage, the next references are copied to shared memory, and its next
// weights are on the way to registers.
#pragma once

#include "dense.cuh"
#include "tensor.cuh"

enum {
  kWeightedColumns = 128,
  kWeightedDepth = 32,  // references of a stage
  kWeightedStages = 2,
  kWeightPieces = kWeightedDepth / kPiece,    // of a row of weights
  kColumnPieces = kWeightedColumns / kPiece,  // of a reference
  kWarpColumns = 32,
  kWarpsOfColumns = kWeightedColumns / kWarpColumns,
  kWeightedRows = kTileRows / (kWarps / kWarpsOfColumns),  // of a warp
  kWeightedDown = kWeightedRows / 16,                      // fragments
  kWeightedAcross = kWarpColumns / 8,
  kCopiedPieces = kWeightedDepth * kColumnPieces / ANOCO_GPU_BLOCK  // by a thread, for a stage
};

static const float kWeightScale = 32768;  // of weights up to 1; a number may be up to 65504

// The first and the second part of eight weights.
struct SplitWeights {
  Piece part[2];
  bool any;  // of them is not 0

  __device__ void split(const FourFloats (&weights)[2]) {
    any = false;
#pragma unroll
    for (int k = 0; k < kPiece; ++k) {
      const float weight = __fmul_rn(kWeightScale, weights[k / 4].at[k % 4]);
      part[0].at[k] = narrow(weight);
      part[1].at[k] = narrow(__fsub_rn(weight, widen(part[0].at[k])));
      any |= weight != 0;
    }
  }
};

// Shared memory of a block.
struct WeightedStages {
  Piece weights[kWeightedStages][2][kTileRows][kWeightPieces];
  Piece references[kWeightedStages][kWeightedDepth][kColumnPieces];
};

// Where pieces lie: those that are read at the same time in different places of 16 bytes.
static __device__ __forceinline__ int weight_place(int row, int piece) {
  return piece ^ (row / 2 % kWeightPieces);
}
static __device__ __forceinline__ int reference_place(int reference, int piece) {
  return piece ^ (reference % 8);
}

// What a thread brings to the stages: eight weights of a row, and pieces of references.
struct WeightedCopies {
  const float* weights;  // of its row, null: there are none
  const half_bits* bank;
  int first, refs, dim;

  static __device__ int row() { return threadIdx.x / kWeightPieces; }
  static __device__ int piece() { return threadIdx.x % kWeightPieces; }

  __device__ void begin(WeightedStages& stages, int step) const {
#pragma unroll
    for (int i = 0; i < kCopiedPieces; ++i) {
      const int n = i * ANOCO_GPU_BLOCK + threadIdx.x, down = n / kColumnPieces,
                across = n % kColumnPieces;
      Piece& to = stages.references[step % kWeightedStages][down][reference_place(down, across)];
      const int j = step * kWeightedDepth + down, column = first + across * kPiece;
      const bool zeros = j >= refs || column >= dim;
      const half_bits* const from = bank + (zeros ? 0 : (long long)j * dim + column);
      if (dim % kPiece == 0) {
        copy_async(&to, (const Piece*)from, zeros);
        continue;
      }
#pragma unroll
      for (int k = 0; k < kPiece; ++k)
        to.at[k].bits = zeros || column + k >= dim ? 0 : from[k].bits;
    }
    commit_copies();
  }

  __device__ void load(int step, FourFloats (&eight)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      eight[half] = {{0, 0, 0, 0}};
      if (weights != nullptr)
        eight[half] = load_four(weights, step * kWeightedDepth + piece() * kPiece + 4 * half, refs);
    }
  }

  // Returns whether any weight is not 0.
  static __device__ bool store(const FourFloats (&eight)[2], WeightedStages& stages, int step) {
    SplitWeights split;
    split.split(eight);
#pragma unroll
    for (int part = 0; part < 2; ++part)
      stages.weights[step % kWeightedStages][part][row()][weight_place(row(), piece())] =
          split.part[part];
    return split.any;
  }
};

// The sums of a warp.
struct WeightedSums {
  SumFragment part[kWeightedDown][kWeightedAcross];
  CompensatedSum sums[kWeightedDown][kWeightedAcross][4];

  // The places in the tile of `sums[m][n][c]`.
  static __device__ int row(int m, int c) {
    return (int)threadIdx.x / kWarp / kWarpsOfColumns * kWeightedRows + 16 * m + c / 2 * 8 +
           threadIdx.x % kWarp / 4;
  }
  static __device__ int first_column() {
    return threadIdx.x / kWarp % kWarpsOfColumns * kWarpColumns;
  }
  static __device__ int column(int n, int c) {
    return first_column() + 8 * n + threadIdx.x % 4 * 2 + c % 2;
  }

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < kWeightedDown; ++m)
#pragma unroll
      for (int n = 0; n < kWeightedAcross; ++n) {
        part[m][n] = {};
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[m][n][c].clear();
      }
  }

  __device__ void multiply(const WeightedStages& stages, int stage) {
    const int lane = threadIdx.x % kWarp, first_row = row(0, 0) - lane / 4;
#pragma unroll
    for (int deep = 0; deep < kWeightPieces; deep += 2) {
      RowFragment a[kWeightedDown][2];
#pragma unroll
      for (int m = 0; m < kWeightedDown; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = first_row + 16 * m + lane % 16;
          load_matrices(a[m][half].at,
                        &stages.weights[stage][half][at][weight_place(at, deep + lane / 16)]);
        }
#pragma unroll
      for (int n = 0; n < kWeightedAcross; n += 2) {
        const int reference = kPiece * deep + lane % 16;
        const int piece = first_column() / kPiece + n + lane / 16;
        unsigned b[4];
        load_transposed(b, &stages.references[stage][reference][reference_place(reference, piece)]);
#pragma unroll
        for (int m = 0; m < kWeightedDown; ++m)
#pragma unroll
          for (int side = 0; side < 2; ++side)
#pragma unroll
            for (int half = 0; half < 2; ++half)
              multiply_add(part[m][n + side], a[m][half], {{b[2 * side], b[2 * side + 1]}});
      }
    }
  }

  __device__ void add_parts() {
#pragma unroll
    for (int m = 0; m < kWeightedDown; ++m)
#pragma unroll
      for (int n = 0; n < kWeightedAcross; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[m][n][c].add(part[m][n].at[c]);
        part[m][n] = {};
      }
  }

  __device__ float value(int m, int n, int c) const {
    return __fmul_rn(sums[m][n][c].value(), 1 / kWeightScale);
  }
};

// Computes the sums of all references, weighted by rows of which `copies` has that of this thread.
// Stages without a weight are left out. All threads of the block must call it.
static __device__ void add_weighted(const WeightedCopies& copies, WeightedStages& stages,
                                    WeightedSums& sums) {
  sums.clear();
  FourFloats next[2];
  __syncthreads();  // until all threads are done with the tile before
  copies.begin(stages, 0);
  copies.load(0, next);
  bool any = copies.store(next, stages, 0);
  const int steps = tiles(copies.refs, kWeightedDepth);
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<0>();
    const int count = __syncthreads_count(any);  // until the stage of all threads is there
    copies.begin(stages, step + 1);
    copies.load(step + 1, next);
    if (count != 0) sums.multiply(stages, step % kWeightedStages);
    any = copies.store(next, stages, step + 1);
    if ((step + 1) * kWeightedDepth % kSummed == 0 || step + 1 == steps) sums.add_parts();
  }
  wait_for_copies<0>();
}
