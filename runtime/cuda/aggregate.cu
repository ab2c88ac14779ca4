// Section 3, steps 3 and 4: which references are neighbors of a query patch, their weights, and the
// weighted sums.
//
// Most patches have a handful of neighbors, a few have the whole bank. The bank is scanned once,
// and up to kChunk neighbors are kept in shared memory. If there are more, it is scanned again, a
// chunk at a time. Either way they are added in index order, so the result is the same.
#include "gpu_kernels.h"
#include "half.cuh"
#include "reduce.cuh"
#include "similarity.cuh"

enum {
  kSteps = 4,  // references that a thread scans together
  kChunk = kSteps * ANOCO_GPU_BLOCK,
  kColumns = 4,  // numbers of a row that a thread adds up together
  kPanel = kColumns * ANOCO_GPU_BLOCK
};

struct Query {
  const float *products, *r_norm;
  float norm, limit, floor;
  int anchor, refs;
};

// Shared memory of a block.
struct NeighborList {
  int index[kChunk];
  float weight[kChunk];
  int in_warp[kSteps][kWarps];
  double scratch[kWarps];
};

// A sum with its rounding error kept beside it, which is exact enough for a hundred thousand terms
// that nearly cancel.
struct CompensatedSum {
  float sum, rest;

  __device__ void add(float term) {
    const float next = __fadd_rn(sum, term);
    const float taken = __fsub_rn(next, sum);
    const float lost = __fadd_rn(__fsub_rn(sum, __fsub_rn(next, taken)), __fsub_rn(term, taken));
    rest = __fadd_rn(rest, lost);
    sum = next;
  }
  __device__ float value() const { return __fadd_rn(sum, rest); }
};

static __device__ float weight_of(const Query& query, float s, float r_norm) {
  const float alpha = 2 * query.norm * r_norm / (query.norm + r_norm);
  return fmaxf(s, query.floor) * alpha;
}

// Scans kChunk references from `first` on and adds the neighbors among them to a list that has
// `count` entries, as far as they fit. Returns the new count, and adds this thread's weights to d.
static __device__ int look_through(const Query& query, int first, int count, NeighborList& list,
                                   double& d) {
  float s[kSteps];
  bool is[kSteps];
  bool any = false;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const int j = first + k * ANOCO_GPU_BLOCK + threadIdx.x;
    is[k] = false;
    if (j >= query.refs) continue;
    s[k] = similarity(query.products[j], query.norm, query.r_norm[j]);
    is[k] = s[k] > query.limit || j == query.anchor;
    any |= is[k];
  }
  if (__syncthreads_count(any) == 0) return count;

  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  unsigned votes[kSteps];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    votes[k] = __ballot_sync(ANOCO_ALL_LANES, is[k]);
    if (lane == 0) list.in_warp[k][warp] = __popc(votes[k]);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    int place = count + __popc(votes[k] & ((1u << lane) - 1));
    for (int w = 0; w < kWarps; ++w) {
      const int others = list.in_warp[k][w];
      if (w < warp) place += others;
      count += others;
    }
    if (!is[k]) continue;
    const int j = first + k * ANOCO_GPU_BLOCK + threadIdx.x;
    const float weight = weight_of(query, s[k], query.r_norm[j]);
    d += (double)weight;
    if (place >= kChunk) continue;
    list.index[place] = j;
    list.weight[place] = weight;
  }
  return count;
}

// Divides the weights by lambda + d, so that nothing overflows.
static __device__ void divide(NeighborList& list, int count, double stiffness) {
  __syncthreads();
  for (int n = threadIdx.x; n < count; n += ANOCO_GPU_BLOCK)
    list.weight[n] = (float)((double)list.weight[n] / stiffness);
  __syncthreads();
}

template <class Number>
struct Panel {
  const Number* bank;
  int dim, first;  // the columns of this thread
  float q[kColumns];
  CompensatedSum drift[kColumns], moved[kColumns];

  __device__ void start(const Number* query, float own_weight) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = first + c * ANOCO_GPU_BLOCK;
      q[c] = column < dim ? load(query, column) : 0.0f;
      drift[c].sum = drift[c].rest = moved[c].rest = 0;
      moved[c].sum = own_weight * q[c];
    }
  }

  __device__ void pull(const NeighborList& list, int count) {
    for (int n = 0; n < count; ++n) {
      const Number* reference = bank + (long long)list.index[n] * dim;
      const float weight = list.weight[n];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int column = first + c * ANOCO_GPU_BLOCK;
        if (column >= dim) continue;
        const float r = load(reference, column);
        drift[c].add(__fmul_rn(weight, __fsub_rn(r, q[c])));
        moved[c].add(__fmul_rn(weight, r));
      }
    }
  }

  __device__ void write(float* drift_out, float* moved_out) const {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = first + c * ANOCO_GPU_BLOCK;
      if (column >= dim) continue;
      drift_out[column] = drift[c].value();
      moved_out[column] = moved[c].value();
    }
  }
};

template <class Number>
static __device__ void aggregate(const Query& query, const Number* q, const Number* bank,
                                 double lambda, int dim, NeighborList& list, float* drift,
                                 float* moved, int* neighbors) {
  int count = 0;
  double d = 0, unused = 0;
  for (int first = 0; first < query.refs; first += kChunk)
    count = look_through(query, first, count, list, d);
  const double stiffness = lambda + reduce(d, Sum(), list.scratch);
  const bool listed = count <= kChunk;
  if (listed) divide(list, count, stiffness);

  Panel<Number> panel;
  panel.bank = bank;
  panel.dim = dim;
  for (int column = 0; column < dim; column += kPanel) {
    panel.first = column + threadIdx.x;
    panel.start(q, (float)(lambda / stiffness));
    if (listed) panel.pull(list, count);
    for (int first = 0; !listed && first < query.refs; first += kChunk) {
      const int some = look_through(query, first, 0, list, unused);
      divide(list, some, stiffness);
      panel.pull(list, some);
    }
    panel.write(drift, moved);
  }
  if (threadIdx.x == 0) *neighbors = count;
}

template <class Number>
static __device__ void aggregate_row(const float* products, const Number* q, const float* q_norm,
                                     const Number* bank, const float* r_norm, const int* anchor,
                                     const float* limit, double lambda, float floor, int refs,
                                     int dim, float* drift, float* moved, int* neighbors,
                                     NeighborList& list) {
  const int row = blockIdx.x;
  const long long numbers = (long long)row * dim;
  const Query query = {
      products + (long long)row * refs, r_norm, q_norm[row], limit[row], floor, anchor[row], refs};
  aggregate(query, q + numbers, bank, lambda, dim, list, drift + numbers, moved + numbers,
            neighbors + row);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, 4)
    anoco_aggregate_f32(const float* products, const float* q, const float* q_norm,
                        const float* bank, const float* r_norm, const int* anchor,
                        const float* limit, double lambda, float floor, int rows, int refs, int dim,
                        float* drift, float* moved, int* neighbors) {
  __shared__ NeighborList list;
  if ((int)blockIdx.x < rows)
    aggregate_row(products, q, q_norm, bank, r_norm, anchor, limit, lambda, floor, refs, dim, drift,
                  moved, neighbors, list);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, 4)
    anoco_aggregate_f16(const float* products, const half_bits* q, const float* q_norm,
                        const half_bits* bank, const float* r_norm, const int* anchor,
                        const float* limit, double lambda, float floor, int rows, int refs, int dim,
                        float* drift, float* moved, int* neighbors) {
  __shared__ NeighborList list;
  if ((int)blockIdx.x < rows)
    aggregate_row(products, q, q_norm, bank, r_norm, anchor, limit, lambda, floor, refs, dim, drift,
                  moved, neighbors, list);
}
