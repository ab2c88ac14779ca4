// Section 3, steps 3 and 5: the weight of a neighbor, and E = |drift|^2 (1 - cos(f~, q)) or one of
// its factors.
#pragma once

#include "half.cuh"
#include "reduce.cuh"

enum { kMetricL2 = 1, kMetricCosine = 2 };  // ANOCO_METRIC_...; 0 is their product

enum { kPanel = 4 * ANOCO_GPU_BLOCK };  // numbers of a row that a block keeps in registers

static __device__ float weight_of(float s, float floor, float q_norm, float r_norm) {
  const float alpha = 2 * q_norm * r_norm / (q_norm + r_norm);
  return (s < floor ? floor : s) * alpha;  // NaN stays NaN
}

// Four numbers of a row; 0 beyond its end.
struct Columns {
  FourFloats q, drift, moved;
};

// `find(k, columns)` computes the four numbers from k on. A row that is longer than a panel is
// computed twice. 1 - cos(u, v) = | u/|u| - v/|v| |^2 / 2 keeps its digits for small angles. An f~
// of length zero has no direction; its cosine is taken as 0. The first thread has the result.
template <class Find>
static __device__ float energy_of(const Find& find, float q_norm, int dim, int metric,
                                  float* scratch) {
  Columns columns;
  float drift_squares = 0, moved_squares = 0;
  for (int k = 4 * threadIdx.x; k < dim; k += kPanel) {
    find(k, columns);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      drift_squares = fmaf(columns.drift.at[c], columns.drift.at[c], drift_squares);
      moved_squares = fmaf(columns.moved.at[c], columns.moved.at[c], moved_squares);
    }
  }
  drift_squares = reduce(drift_squares, Sum(), scratch);
  moved_squares = reduce(moved_squares, Sum(), scratch);
  const float shrink = 1 / sqrtf(moved_squares), q_shrink = 1 / q_norm;
  float chord = 0;
  for (int k = 4 * threadIdx.x; k < dim; k += kPanel) {
    if (dim > kPanel) find(k, columns);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float difference =
          fmaf(columns.moved.at[c], shrink, -__fmul_rn(columns.q.at[c], q_shrink));
      chord = fmaf(difference, difference, chord);
    }
  }
  chord = reduce(chord, Sum(), scratch);
  const float turn = moved_squares == 0 ? 1.0f : chord / 2;
  return metric == kMetricL2       ? drift_squares
         : metric == kMetricCosine ? turn
                                   : drift_squares * turn;
}
