// Section 3, steps 4 and 5, for dense rows: drift and f~ from the weighted means of the references,
// and the energy.
#include "dense.cuh"
#include "energy.cuh"
#include "gpu_kernels.h"

template <class Number>
struct Pulled {
  const Number* q;
  const float* mean;
  int dim;
  float share, own_weight;  // of the references and of the query: d and lambda, over lambda + d

  __device__ void operator()(int k, Columns& columns) const {
    columns.q = load_four(q, k, dim);
    const FourFloats r = load_four(mean, k, dim);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      columns.drift.at[c] = __fmul_rn(share, __fsub_rn(r.at[c], columns.q.at[c]));
      columns.moved.at[c] = fmaf(share, r.at[c], __fmul_rn(own_weight, columns.q.at[c]));
    }
  }
};

template <class Number>
static __device__ void dense_energy(const Number* q, const float* q_norm, const float* mean,
                                    const double* totals, const int* dense_rows,
                                    const int* dense_count, int from, int room, double lambda,
                                    int dim, int metric, float* energy, float* scratch) {
  const int count = slots(dense_count, from, room);
  for (int slot = blockIdx.x; slot < count; slot += gridDim.x) {
    const int row = dense_rows[slot];
    const double d = totals[slot], stiffness = lambda + d;
    const Pulled<Number> pulled = {q + (long long)row * dim, mean + (long long)slot * dim, dim,
                                   (float)(d / stiffness), (float)(lambda / stiffness)};
    const float found = energy_of(pulled, q_norm[row], dim, metric, scratch);
    if (threadIdx.x == 0) energy[row] = found;
  }
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_dense_energy_f32(const float* q, const float* q_norm, const float* mean,
                           const double* totals, const int* dense_rows, const int* dense_count,
                           int first, int room, double lambda, int dim, int metric, float* energy) {
  __shared__ float scratch[kWarps];
  dense_energy(q, q_norm, mean, totals, dense_rows, dense_count, first, room, lambda, dim, metric,
               energy, scratch);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_dense_energy_f16(const half_bits* q, const float* q_norm, const float* mean,
                           const double* totals, const int* dense_rows, const int* dense_count,
                           int first, int room, double lambda, int dim, int metric, float* energy) {
  __shared__ float scratch[kWarps];
  dense_energy(q, q_norm, mean, totals, dense_rows, dense_count, first, room, lambda, dim, metric,
               energy, scratch);
}
