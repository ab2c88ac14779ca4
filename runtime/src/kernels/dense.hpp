// The weights and energies of rows with many neighbors, in float64. generic.hpp includes it into
// each instruction set's file, whose compiler flags turn the loops into its vectors; like there,
// nothing of the standard library is used.
#pragma once

#include "kernels/kernels.hpp"

namespace anoco {
namespace {

// Numbers of kDenseTogether rows; those of missing rows are zeros.
using DenseBlock = double[kDenseTogether][kBlock];

// Adds the numbers of each row to its sum, in their order.
inline void add_in_order(const DenseBlock& numbers, int64_t width, double* sums) {
  double sum[kDenseTogether];
#pragma GCC unroll 8
  for (int64_t r = 0; r < kDenseTogether; ++r) sum[r] = sums[r];
  for (int64_t j = 0; j < width; ++j)
#pragma GCC unroll 8
    for (int64_t r = 0; r < kDenseTogether; ++r) sum[r] += numbers[r][j];
#pragma GCC unroll 8
  for (int64_t r = 0; r < kDenseTogether; ++r) sums[r] = sum[r];
}

// Turns a block of a row into weights, in float64 too, and returns how many neighbors it has. A
// compiler turns the loops into vectors of float64.
inline int64_t weigh_block(float* s, const WeightRule& rule, const float* norm, int64_t anchor,
                           int64_t width, double* weights) {
  const bool has_anchor = anchor >= 0 && anchor < width;
  for (int64_t j = 0; j < width; ++j) {
    const double most = double(s[j]) < rule.floor ? rule.floor : double(s[j]);
    weights[j] = most * 2 * rule.norm * double(norm[j]) / (rule.norm + double(norm[j]));
  }
  const double of_anchor = has_anchor ? weights[anchor] : 0;
  int neighbors = has_anchor && !(s[anchor] > rule.violator) ? 1 : 0;
  for (int64_t j = 0; j < width; ++j) neighbors += s[j] > rule.violator ? 1 : 0;
  for (int64_t j = 0; j < width; ++j) weights[j] = s[j] > rule.violator ? weights[j] : 0;
  if (has_anchor) weights[anchor] = of_anchor;
  for (int64_t j = 0; j < width; ++j) s[j] = float(weights[j]);
  return neighbors;
}

inline void weigh(float* const* similarities, const WeightRule* rules, int64_t rows,
                  const float* norms, int64_t count, WeightSum* out) {
  DenseBlock weights = {};
  double sums[kDenseTogether] = {};
  for (int64_t r = 0; r < rows; ++r) out[r].neighbors = 0;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t width = count - first < kBlock ? count - first : kBlock;
    for (int64_t r = 0; r < rows; ++r)
      out[r].neighbors += weigh_block(similarities[r] + first, rules[r], norms + first,
                                      rules[r].anchor - first, width, weights[r]);
    add_in_order(weights, width, sums);
  }
  for (int64_t r = 0; r < rows; ++r) out[r].sum = sums[r];
}

inline void solve_dense(const DenseSum* sums, int64_t rows, int64_t count, DenseChange* out) {
  DenseBlock drifts = {}, moves = {};
  double drift_squares[kDenseTogether] = {}, moved_squares[kDenseTogether] = {};
  double inverses[kDenseTogether], chords[kDenseTogether] = {};
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t width = count - first < kBlock ? count - first : kBlock;
    for (int64_t r = 0; r < rows; ++r) {
      const DenseSum& sum = sums[r];
      const double stiffness = sum.lambda + sum.weights;
      const float *q = sum.query + first, *pull = sum.pull + first;
      for (int64_t k = 0; k < width; ++k) {
        const double drift = (double(pull[k]) - sum.weights * double(q[k])) / stiffness;
        const double moved = (sum.lambda * double(q[k]) + double(pull[k])) / stiffness;
        drifts[r][k] = drift * drift;
        moves[r][k] = moved * moved;
      }
    }
    add_in_order(drifts, width, drift_squares);
    add_in_order(moves, width, moved_squares);
  }
  for (int64_t r = 0; r < rows; ++r) inverses[r] = 1 / __builtin_sqrt(moved_squares[r]);
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t width = count - first < kBlock ? count - first : kBlock;
    for (int64_t r = 0; r < rows; ++r) {
      const DenseSum& sum = sums[r];
      const double stiffness = sum.lambda + sum.weights;
      const float *q = sum.query + first, *pull = sum.pull + first;
      for (int64_t k = 0; k < width; ++k) {
        const double moved = (sum.lambda * double(q[k]) + double(pull[k])) / stiffness;
        const double difference = moved * inverses[r] - double(q[k]) / sum.norm;
        moves[r][k] = difference * difference;
      }
    }
    add_in_order(moves, width, chords);
  }
  for (int64_t r = 0; r < rows; ++r) out[r] = {drift_squares[r], chords[r], moved_squares[r] != 0};
}

}  // namespace
}  // namespace anoco
