// What the kernels share that finish dense rows, patches with very many neighbors: the list of them
// and the product of two matrices.
//
// The list is made on the device. The grids do not depend on its length: a block takes one tile of
// the work after the other until there is none, and does nothing if the list is empty. Where there
// is no memory for the products of all rows, the list is finished in parts: the `first` rows are
// done, `room` are to be done now.
#pragma once

#include "half.cuh"
#include "reduce.cuh"

enum {
  kTileRows = ANOCO_GPU_TILE_ROWS,
  kTileColumns = ANOCO_GPU_TILE_COLUMNS,
  kTileDepth = 16,  // factors that are in shared memory at a time
  kThreadRows = 4,  // results of a thread
  kThreadColumns = 2,
  kThreadsAcross = kTileColumns / kThreadColumns,
  kSummed = 4 * kTileDepth,  // products of a plain sum
  kPad = 4
};

// A sum of a row's length of terms.
struct PlainSum {
  float sum;

  __device__ void clear() { sum = 0; }
  __device__ void add(float term) { sum = __fadd_rn(sum, term); }
  __device__ float value() const { return sum; }
};

// A sum with its rounding error kept beside it, which is exact enough for a hundred thousand terms
// that nearly cancel.
struct CompensatedSum {
  float sum, rest;

  __device__ void clear() { sum = rest = 0; }
  __device__ void add(float term) {
    const float next = __fadd_rn(sum, term);
    const float taken = __fsub_rn(next, sum);
    const float lost = __fadd_rn(__fsub_rn(sum, __fsub_rn(next, taken)), __fsub_rn(term, taken));
    rest = __fadd_rn(rest, lost);
    sum = next;
  }
  __device__ float value() const { return __fadd_rn(sum, rest); }
};

// Shared memory of a block.
struct alignas(16) TileMemory {
  float left[kTileDepth][kTileRows + kPad];
  float right[kTileDepth][kTileColumns + kPad];
  int row[kTileRows];       // of the query, -1: none
  int source[kTileRows];    // the row of the left matrix
  int products[kTileRows];  // the row of the products, or of the weights that replace them
};

static __device__ __forceinline__ int tiles(int count, int size) {
  return (count + size - 1) / size;
}

// Returns how many rows of the list this part has.
static __device__ __forceinline__ int slots(const int* dense_count, int first, int room) {
  return max(0, min(*dense_count - first, room));
}

// The place of the results of this thread.
static __device__ __forceinline__ int thread_row() {
  return threadIdx.x / kThreadsAcross * kThreadRows;
}
static __device__ __forceinline__ int thread_column() {
  return threadIdx.x % kThreadsAcross * kThreadColumns;
}

// Notes the rows of a tile of the list; `source(row, products)` is where their left factors are. If
// `packed`, the list's products are one after the other, else at their rows. All threads may read
// them after the next barrier.
template <class Source>
static __device__ void choose_rows(int first, const int* dense_rows, int count, int packed,
                                   const Source& source, TileMemory& memory) {
  __syncthreads();  // until all threads are done with the tile before
  if (threadIdx.x < kTileRows) {
    const int slot = first + threadIdx.x;
    const int row = slot < count ? dense_rows[slot] : -1;
    const int products = packed ? slot : row;
    memory.row[threadIdx.x] = row;
    memory.products[threadIdx.x] = products;
    memory.source[threadIdx.x] = row < 0 ? -1 : source(row, products);
  }
}

// References as the columns of a tile.
template <class Number>
struct References {
  const Number* bank;
  int first, refs, dim;

  static __device__ int column_of(int n) { return n / kTileDepth; }
  static __device__ int depth_of(int n) { return n % kTileDepth; }
  __device__ float operator()(int column, int k) const {
    const int j = first + column;
    return j < refs ? load(bank, (long long)j * dim + k) : 0.0f;
  }
};

// Adds the products of the factors that are in shared memory.
static __device__ __forceinline__ void multiply_step(const TileMemory& memory,
                                                     float (&part)[kThreadRows][kThreadColumns]) {
#pragma unroll
  for (int k = 0; k < kTileDepth; ++k)
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i)
#pragma unroll
      for (int j = 0; j < kThreadColumns; ++j)
        part[i][j] = fmaf(memory.left[k][thread_row() + i], memory.right[k][thread_column() + j],
                          part[i][j]);
}

// sums[i][j] = sum over k < depth of left[source][k] right(column, k). `Right` says which number of
// the tile a thread reads, so that neighboring threads read neighboring numbers. Steps without a
// left factor, as weights of references that are not neighbors have none, are left out.
template <class Number, class Right, class PartSum>
static __device__ void multiply_tile(const Number* left, const Right& right, int depth,
                                     TileMemory& memory,
                                     PartSum (&sums)[kThreadRows][kThreadColumns]) {
  float part[kThreadRows][kThreadColumns];
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i)
#pragma unroll
    for (int j = 0; j < kThreadColumns; ++j) {
      sums[i][j].clear();
      part[i][j] = 0;
    }
  for (int from = 0; from < depth; from += kTileDepth) {
    __syncthreads();  // until all threads have multiplied what is there
    bool any = false;
#pragma unroll
    for (int step = 0; step < kTileRows * kTileDepth; step += ANOCO_GPU_BLOCK) {
      const int n = step + threadIdx.x, row = n / kTileDepth, k = n % kTileDepth,
                source = memory.source[row];
      memory.left[k][row] =
          source >= 0 && from + k < depth ? load(left, (long long)source * depth + from + k) : 0.0f;
      any |= memory.left[k][row] != 0;
    }
#pragma unroll
    for (int step = 0; step < kTileColumns * kTileDepth; step += ANOCO_GPU_BLOCK) {
      const int n = step + threadIdx.x, column = Right::column_of(n), k = Right::depth_of(n);
      memory.right[k][column] = from + k < depth ? right(column, from + k) : 0.0f;
    }
    if (__syncthreads_count(any) != 0) multiply_step(memory, part);
    const int done = from + kTileDepth;
    if (done % kSummed != 0 && done < depth) continue;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i)
#pragma unroll
      for (int j = 0; j < kThreadColumns; ++j) {
        sums[i][j].add(part[i][j]);
        part[i][j] = 0;
      }
  }
}
