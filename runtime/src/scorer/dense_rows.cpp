// Finishes the dense rows, those with very many neighbors, together: t_i from one more matrix
// product (anchors times bank), and the sums of weighted references from another (weights times
// bank).
#include <algorithm>
#include <cmath>
#include <limits>

#include "scorer/scorer.hpp"
#include "scorer/stopwatch.hpp"

namespace anoco {

void Scorer::finish_dense_rows() {
  pack_anchors();
  for_each_piece(dense_count_, [&](int64_t column, int64_t first, int64_t end, Scratch& scratch) {
    bank_->pack(column, columns_from(column), scratch.right.data());
    for (int64_t top = first; top < end; top += kGroup)
      find_violators(top, std::min(top + kGroup, end), column, scratch);
  });
  pool_.run(dense_count_, [&](int64_t c, int thread) {
    const Stopwatch watch(scratch_[thread].solve_seconds);
    weigh(dense_rows_[c]);
  });
  const int64_t widths = pieces(bank_->dim(), kColumns);
  pool_.run(pieces(dense_count_, kDenseRows) * widths, [&](int64_t item, int thread) {
    Scratch& scratch = scratch_[thread];
    const Stopwatch watch(scratch.solve_seconds);
    pull_dense_rows(item / widths * kDenseRows, item % widths * kColumns, scratch);
  });
  pool_.run(dense_count_, [&](int64_t c, int thread) {
    const Stopwatch watch(scratch_[thread].solve_seconds);
    Row& row = rows_[dense_rows_[c]];
    row.energy = solve_dense_row(row, left_.data() + c * bank_->dim());
  });
}

// Packs the anchors of the dense rows in place of the queries, which are no longer needed.
void Scorer::pack_anchors() {
  const int64_t mr = k_.mr, dim = bank_->dim();
  pool_.run(pieces(dense_count_, mr), [&](int64_t panel, int thread) {
    Scratch& scratch = scratch_[thread];
    const float* rows[kMostPanelRows];
    const int64_t first = panel * mr, count = std::min(mr, dense_count_ - first);
    for (int64_t i = 0; i < count; ++i)
      rows[i] = bank_->row(rows_[dense_rows_[first + i]].anchor, scratch.panel.data() + i * dim);
    k_.pack_a(rows, count, dim, left_.data() + first * dim);
  });
}

// Finds the largest s_ij of a reference with a_ij <= s* within these columns. It is stored in place
// of the maximum of the first block of the columns.
void Scorer::find_violators(int64_t first, int64_t end, int64_t column, Scratch& scratch) {
  multiply(left_.data() + first * bank_->dim(), end - first, column, scratch);
  for (int64_t c = first; c < end; ++c) {
    const int64_t i = dense_rows_[c];
    const Row& row = rows_[i];
    const float* s = similarities(i) + column;
    const float* product = scratch.block.data() + (c - first) * kColumns;
    const float* inverses = bank_->inverse_norms() + column;
    const float inverse = bank_->inverse_norm(row.anchor);
    float t = -std::numeric_limits<float>::infinity();
    for (int64_t j = 0; j < columns_from(column); ++j) {
      const bool violates = !(product[j] * inverse * inverses[j] > row.similarity);
      if (violates && s[j] > t && column + j != row.anchor) t = s[j];
    }
    maxima(i)[column / kBlock] = t;
  }
}

// Turns the similarities of row i into weights; they are not needed afterwards.
void Scorer::weigh(int64_t i) {
  Row& row = rows_[i];
  float* s = similarities(i);
  float t = -std::numeric_limits<float>::infinity();
  for (int64_t column = 0; column < bank_->rows(); column += kColumns)
    t = std::max(t, maxima(i)[column / kBlock]);
  row.neighbors = 0;
  row.weights = 0;
  for (int64_t j = 0; j < bank_->rows(); ++j) {
    if (!(s[j] > t) && j != row.anchor) {
      s[j] = 0;
      continue;
    }
    const double w = weight(row, j, s[j]);
    row.weights += w;
    ++row.neighbors;
    s[j] = float(w);
  }
}

// Computes sum_j w_ij r_j for kDenseRows rows and kColumns of their numbers, in place of the
// anchors.
void Scorer::pull_dense_rows(int64_t first, int64_t column, Scratch& scratch) {
  const int64_t mr = k_.mr, nr = k_.nr, dim = bank_->dim();
  const int64_t height = std::min(kDenseRows, dense_count_ - first);
  const int64_t width = std::min(kColumns, dim - column);
  double* sums = scratch.sums.data();
  std::fill(sums, sums + height * kColumns, 0.0);
  for (int64_t from = 0; from < bank_->rows(); from += kDenseDepth) {
    const int64_t depth = std::min(kDenseDepth, bank_->rows() - from);
    bank_->slice(from, depth, column, width, scratch.right.data());
    for (int64_t c = 0; c < height; c += mr) {
      const float* rows[kMostPanelRows];
      const int64_t count = std::min(mr, height - c);
      for (int64_t i = 0; i < count; ++i) rows[i] = similarities(dense_rows_[first + c + i]) + from;
      k_.pack_a(rows, count, depth, scratch.left.data());
      float* block = scratch.block.data();
      for (int64_t j = 0; j < width; j += nr)
        k_.multiply(depth, scratch.left.data(), scratch.right.data() + j * depth, block + j,
                    kColumns, false);
      for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < width; ++j)
          sums[(c + i) * kColumns + j] += double(block[i * kColumns + j]);
    }
  }
  for (int64_t c = 0; c < height; ++c)
    for (int64_t j = 0; j < width; ++j)
      left_[(first + c) * dim + column + j] = float(sums[c * kColumns + j]);
}

float Scorer::solve_dense_row(const Row& row, const float* pull) const {
  const double stiffness = settings_.lambda + row.weights;
  double drift_squares = 0, moved_squares = 0;
  const int64_t dim = bank_->dim();
  for (int64_t k = 0; k < dim; ++k) {
    const double drift = (pull[k] - row.weights * row.query[k]) / stiffness;
    const double moved = (settings_.lambda * row.query[k] + pull[k]) / stiffness;
    drift_squares += drift * drift;
    moved_squares += moved * moved;
  }
  if (moved_squares == 0) return energy(drift_squares, 1);
  const double inverse = 1 / std::sqrt(moved_squares);
  double chord = 0;
  for (int64_t k = 0; k < dim; ++k) {
    const double moved = (settings_.lambda * row.query[k] + pull[k]) / stiffness;
    const double difference = moved * inverse - row.query[k] / row.norm;
    chord += difference * difference;
  }
  return energy(drift_squares, chord / 2);
}

}  // namespace anoco
