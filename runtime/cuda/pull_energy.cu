// Section 3, steps 3 to 5, for a patch whose neighbors are listed: their weights, drift, f~ and the
// energy. Drift and f~ stay in registers.
#include "energy.cuh"
#include "gpu_kernels.h"

// Shared memory of a block.
struct Neighbors {
  int index[ANOCO_GPU_LISTED];
  float weight[ANOCO_GPU_LISTED];  // divided by lambda + d, so that nothing overflows
  double totals[kWarps];
  float scratch[kWarps];
};

template <class Number>
struct Pull {
  const Number *q, *bank;
  const Neighbors& neighbors;
  int count, dim;
  float own_weight;

  __device__ void operator()(int k, Columns& columns) const {
    columns.q = load_four(q, k, dim);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      columns.drift.at[c] = 0;
      columns.moved.at[c] = __fmul_rn(own_weight, columns.q.at[c]);
    }
    for (int n = 0; n < count; ++n) {
      const float weight = neighbors.weight[n];
      const FourFloats r = load_four(bank + (long long)neighbors.index[n] * dim, k, dim);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        columns.drift.at[c] =
            fmaf(weight, __fsub_rn(r.at[c], columns.q.at[c]), columns.drift.at[c]);
        columns.moved.at[c] = fmaf(weight, r.at[c], columns.moved.at[c]);
      }
    }
  }
};

template <class Number>
static __device__ void pull_energy(const Number* q, const float* q_norm, const Number* bank,
                                   const float* r_norm, const Ranked* listed, const int* count,
                                   double lambda, float floor, int rows, int dim, int metric,
                                   float* energy, Neighbors& neighbors) {
  const int row = blockIdx.x, n = threadIdx.x;
  if (row >= rows || count[row] == 0) return;
  double weight = 0;
  if (n < count[row]) {
    const Ranked neighbor = listed[(long long)row * ANOCO_GPU_LISTED + n];
    const int j = place_of(neighbor);
    weight = (double)weight_of(value_of(neighbor), floor, q_norm[row], r_norm[j]);
    neighbors.index[n] = j;
  }
  const double stiffness = lambda + reduce(weight, Sum(), neighbors.totals);
  if (n < count[row]) neighbors.weight[n] = (float)(weight / stiffness);
  __syncthreads();
  const Pull<Number> pull = {q + (long long)row * dim,   bank, neighbors, count[row], dim,
                             (float)(lambda / stiffness)};
  const float found = energy_of(pull, q_norm[row], dim, metric, neighbors.scratch);
  if (threadIdx.x == 0) energy[row] = found;
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, 4)
    anoco_pull_energy_f32(const float* q, const float* q_norm, const float* bank,
                          const float* r_norm, const Ranked* listed, const int* neighbors,
                          double lambda, float floor, int rows, int dim, int metric,
                          float* energy) {
  __shared__ Neighbors shared;
  pull_energy(q, q_norm, bank, r_norm, listed, neighbors, lambda, floor, rows, dim, metric, energy,
              shared);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK, 4)
    anoco_pull_energy_f16(const half_bits* q, const float* q_norm, const half_bits* bank,
                          const float* r_norm, const Ranked* listed, const int* neighbors,
                          double lambda, float floor, int rows, int dim, int metric,
                          float* energy) {
  __shared__ Neighbors shared;
  pull_energy(q, q_norm, bank, r_norm, listed, neighbors, lambda, floor, rows, dim, metric, energy,
              shared);
}
