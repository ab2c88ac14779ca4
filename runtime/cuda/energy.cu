// Section 3, step 5: E = |drift|^2 (1 - cos(f~, q)), or one of its factors.
#include "gpu_kernels.h"
#include "half.cuh"
#include "reduce.cuh"

enum { kMetricL2 = 1, kMetricCosine = 2 };  // ANOCO_METRIC_...; 0 is their product

// 1 - cos(u, v) = | u/|u| - v/|v| |^2 / 2 keeps its digits for small angles. An f~ of length zero
// has no direction; its cosine is taken as 0.
template <class Number>
static __device__ void energy_of(const Number* q, float q_norm, const float* drift,
                                 const float* moved, int dim, int metric, float* scratch,
                                 float* energy) {
  float drift_squares = 0, moved_squares = 0;
  for (int k = threadIdx.x; k < dim; k += ANOCO_GPU_BLOCK) {
    drift_squares = fmaf(drift[k], drift[k], drift_squares);
    moved_squares = fmaf(moved[k], moved[k], moved_squares);
  }
  drift_squares = reduce(drift_squares, Sum(), scratch);
  moved_squares = reduce(moved_squares, Sum(), scratch);
  const float shrink = 1 / sqrtf(moved_squares), q_shrink = 1 / q_norm;
  float chord = 0;
  for (int k = threadIdx.x; k < dim; k += ANOCO_GPU_BLOCK) {
    const float difference = fmaf(moved[k], shrink, -__fmul_rn(load(q, k), q_shrink));
    chord = fmaf(difference, difference, chord);
  }
  chord = reduce(chord, Sum(), scratch);
  if (threadIdx.x != 0) return;
  const float turn = moved_squares == 0 ? 1.0f : chord / 2;
  *energy = metric == kMetricL2       ? drift_squares
            : metric == kMetricCosine ? turn
                                      : drift_squares * turn;
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_energy_f32(const float* q, const float* q_norm, const float* drift, const float* moved,
                     int rows, int dim, int metric, float* energy) {
  __shared__ float scratch[kWarps];
  const int row = blockIdx.x;
  const long long numbers = (long long)row * dim;
  if (row < rows)
    energy_of(q + numbers, q_norm[row], drift + numbers, moved + numbers, dim, metric, scratch,
              energy + row);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_energy_f16(const half_bits* q, const float* q_norm, const float* drift,
                     const float* moved, int rows, int dim, int metric, float* energy) {
  __shared__ float scratch[kWarps];
  const int row = blockIdx.x;
  const long long numbers = (long long)row * dim;
  if (row < rows)
    energy_of(q + numbers, q_norm[row], drift + numbers, moved + numbers, dim, metric, scratch,
              energy + row);
}
