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
  const int64_t unsettled = list_unsettled();
  pack_anchors(unsettled);
  for_each_piece(unsettled, [&](int64_t column, int64_t first, int64_t end, Scratch& scratch) {
    if (!is_open(first, end, column)) return;
    bank_->pack(column, columns_from(column), scratch.right.data());
    for (int64_t top = first; top < end; top += kGroup)
      find_violators(top, std::min(top + kGroup, end), column, scratch);
  });
  weigh_dense_rows();
  pull_dense_rows();
  solve_dense_rows();
}

// Lists the dense rows that may have violators and returns how many there are.
int64_t Scorer::list_unsettled() {
  int64_t count = 0;
  for (int64_t c = 0; c < dense_count_; ++c) {
    const int64_t i = dense_rows_[c];
    if (is_settled(rows_[i])) continue;
    std::fill(maxima(i), maxima(i) + layout_.blocks, -std::numeric_limits<float>::infinity());
    list_[count++] = i;
  }
  return count;
}

// Packs the anchors of the listed rows in place of the queries, which are no longer needed.
void Scorer::pack_anchors(int64_t listed) {
  const int64_t mr = k_.mr, dim = bank_->dim();
  pool_.run(pieces(listed, mr), [&](int64_t panel, int thread) {
    Scratch& scratch = scratch_[thread];
    const float* rows[kMostPanelRows];
    const int64_t first = panel * mr, count = std::min(mr, listed - first);
    for (int64_t i = 0; i < count; ++i)
      rows[i] = bank_->row(rows_[list_[first + i]].anchor, scratch.panel.data() + i * dim);
    k_.pack_a(rows, count, dim, left_.data() + first * dim);
  });
}

// Tells whether one of these listed rows may have a violator within the columns.
bool Scorer::is_open(int64_t first, int64_t end, int64_t column) const {
  float widest = 0;
  for (int64_t j = 0; j < columns_from(column); j += kBlock)
    widest = std::max(widest, cone_.widest((column + j) / kBlock));
  for (int64_t c = first; c < end; ++c)
    if (!(widest < rows_[list_[c]].reach)) return true;
  return false;
}

// Finds the largest s_ij of a reference with a_ij <= s* within these columns. It is stored in place
// of the maximum of the first block of the columns. Panels of rows without violators are left out.
void Scorer::find_violators(int64_t first, int64_t end, int64_t column, Scratch& scratch) {
  const int64_t mr = k_.mr, whole = end;
  const auto open = [&](int64_t c) { return is_open(c, std::min(c + mr, whole), column); };
  while (first < whole && !open(first)) first += mr;
  if (first >= whole) return;
  for (end = first + mr; end < whole && open(end);) end += mr;
  end = std::min(end, whole);

  multiply(left_.data() + first * bank_->dim(), end - first, column, scratch);
  for (int64_t c = first; c < end; ++c) {
    const int64_t i = list_[c];
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
  find_violators(end, whole, column, scratch);
}

// Turns the similarities of the dense rows into weights; they are not needed afterwards.
void Scorer::weigh_dense_rows() {
  pool_.run(pieces(dense_count_, kDenseTogether), [&](int64_t item, int thread) {
    const Stopwatch watch(scratch_[thread].solve_seconds);
    float* s[kDenseTogether];
    WeightRule rules[kDenseTogether];
    WeightSum totals[kDenseTogether];
    const int64_t first = item * kDenseTogether;
    const int64_t count = std::min(kDenseTogether, dense_count_ - first);
    for (int64_t c = 0; c < count; ++c) {
      const int64_t i = dense_rows_[first + c];
      s[c] = similarities(i);
      rules[c] = {rows_[i].norm, settings_.floor, find_violator(i), rows_[i].anchor};
    }
    k_.weigh(s, rules, count, bank_->norms(), bank_->rows(), totals);
    for (int64_t c = 0; c < count; ++c) {
      Row& row = rows_[dense_rows_[first + c]];
      row.neighbors = totals[c].neighbors;
      row.weights = totals[c].sum;
    }
  });
}

// Returns t_i, the similarity of the first violator; minus infinity if there is none.
float Scorer::find_violator(int64_t i) {
  float t = -std::numeric_limits<float>::infinity();
  if (!is_settled(rows_[i]))
    for (int64_t column = 0; column < bank_->rows(); column += kColumns)
      t = std::max(t, maxima(i)[column / kBlock]);
  return t;
}

// Computes sum_j w_ij r_j for all dense rows, in place of the anchors. Its pieces are as large as
// leave each thread some of them.
void Scorer::pull_dense_rows() {
  constexpr int64_t kPiecesPerThread = 2, kLeastHeight = 96;
  const int64_t mr = k_.mr, dim = bank_->dim();
  const int64_t width = dim < kDenseColumns ? kColumns : kDenseColumns;
  const int64_t widths = pieces(dim, width);
  const int64_t parts = pieces(kPiecesPerThread * pool_.threads(), widths);
  const int64_t wanted = std::max(pieces(pieces(dense_count_, parts), mr) * mr, kLeastHeight);
  const int64_t height = std::min(wanted, kDenseRows);
  pool_.run(pieces(dense_count_, height) * widths, [&](int64_t item, int thread) {
    Scratch& scratch = scratch_[thread];
    const Stopwatch watch(scratch.solve_seconds);
    const int64_t first = item / widths * height, column = item % widths * width;
    pull_piece(first, std::min(height, dense_count_ - first), column, std::min(width, dim - column),
               scratch);
  });
}

// Packs as much of the bank at once as fits in the scratch memory.
void Scorer::pull_piece(int64_t first, int64_t height, int64_t column, int64_t width,
                        Scratch& scratch) {
  const int64_t mr = k_.mr, nr = k_.nr, dim = bank_->dim(), rows = bank_->rows();
  double* sums = scratch.sums.data();
  std::fill(sums, sums + pieces(height, mr) * mr * kDenseColumns, 0.0);
  const int64_t fit = scratch.right.size() / (pieces(width, nr) * nr) / kSumDepth * kSumDepth;
  const int64_t most = std::min(fit, kMostDenseDepth);
  for (int64_t from = 0; from < rows; from += most) {
    const int64_t depth = std::min(most, rows - from);
    bank_->slice(from, depth, column, width, scratch.right.data());
    pull_depth(first, height, from, depth, width, scratch);
  }
  for (int64_t c = 0; c < height; ++c)
    for (int64_t j = 0; j < width; ++j)
      left_[(first + c) * dim + column + j] = float(sums[c * kDenseColumns + j]);
}

// Adds weights times the packed references, for as many rows at a time as fit in the block.
void Scorer::pull_depth(int64_t first, int64_t height, int64_t from, int64_t depth, int64_t width,
                        Scratch& scratch) {
  const int64_t mr = k_.mr, nr = k_.nr;
  const int64_t together = kGroup * kColumns / depth / mr * mr;
  for (int64_t top = 0; top < height; top += together) {
    const int64_t end = std::min(top + together, height);
    for (int64_t c = top; c < end; c += mr) {
      const float* rows[kMostPanelRows];
      const int64_t count = std::min(mr, end - c);
      for (int64_t i = 0; i < count; ++i) rows[i] = similarities(dense_rows_[first + c + i]) + from;
      k_.pack_a(rows, count, depth, scratch.block.data() + (c - top) * depth);
    }
    for (int64_t j = 0; j < width; j += nr)
      for (int64_t c = top; c < end; c += mr)
        k_.multiply_sum(depth, scratch.block.data() + (c - top) * depth,
                        scratch.right.data() + j * depth,
                        scratch.sums.data() + c * kDenseColumns + j, kDenseColumns);
  }
}

void Scorer::solve_dense_rows() {
  const int64_t dim = bank_->dim();
  pool_.run(pieces(dense_count_, kDenseTogether), [&](int64_t item, int thread) {
    const Stopwatch watch(scratch_[thread].solve_seconds);
    DenseSum sums[kDenseTogether];
    DenseChange changes[kDenseTogether];
    const int64_t first = item * kDenseTogether;
    const int64_t count = std::min(kDenseTogether, dense_count_ - first);
    for (int64_t c = 0; c < count; ++c) {
      const Row& row = rows_[dense_rows_[first + c]];
      sums[c] = {row.query, left_.data() + (first + c) * dim, row.weights, settings_.lambda,
                 row.norm};
    }
    k_.solve_dense(sums, count, dim, changes);
    for (int64_t c = 0; c < count; ++c) {
      const double turn = changes[c].has_direction ? changes[c].chord / 2 : 1;
      rows_[dense_rows_[first + c]].energy = energy(changes[c].drift_squares, turn);
    }
  });
}

}  // namespace anoco
