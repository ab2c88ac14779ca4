// Computes s_ij of a tile: a matrix product in pieces of kGroup rows and kColumns references. The
// largest value of each block is taken while the piece is in the cache.
#include <algorithm>
#include <cmath>
#include <limits>

#include "scorer/scorer.hpp"
#include "scorer/stopwatch.hpp"

namespace anoco {
namespace {

// Rows between that which is stored and that whose memory is brought into the cache meanwhile.
constexpr int64_t kAhead = 4;

void fetch_to_write(const float* piece) {
  constexpr int64_t kLine = 16;  // numbers in a line of the cache
  for (int64_t j = 0; j < kColumns; j += kLine) __builtin_prefetch(piece + j, 1);
}

}  // namespace

void Scorer::compute_similarities(int64_t rows) {
  pool_.run(pieces(rows, kMostPanelRows), [&](int64_t item, int) {
    const int64_t first = item * kMostPanelRows, end = std::min(first + kMostPanelRows, rows);
    for (int64_t i = first; i < end; ++i) {
      rows_[i].norm = std::sqrt(k_.squares(rows_[i].query, bank_->dim()));
      rows_[i].inverse = float(1 / rows_[i].norm);
    }
  });
  if (bank_->projection() && prune(rows)) return;
  if (prune_rounded(rows)) return;
  for (int64_t i = 0; i < rows; ++i) list_[i] = i;
  pack_listed(rows);
  multiply_listed(rows);
}

// Computes the similarities of the first `count` rows of list_ to the whole bank, from their packed
// queries.
void Scorer::multiply_listed(int64_t count) {
  for_each_piece(count, [&](int64_t column, int64_t first, int64_t end, Scratch& scratch) {
    bank_->pack(column, columns_from(column), scratch.right.data());
    for (int64_t top = first; top < end; top += kGroup) {
      const int64_t height = std::min(kGroup, end - top);
      multiply(left_.data() + top * bank_->dim(), height, column, scratch);
      for (int64_t i = 0; i < height; ++i) {
        const int64_t row = list_[top + i];
        if (i + kAhead < height) fetch_to_write(similarities(list_[top + i + kAhead]) + column);
        keep(row, column, scratch.block.data() + i * kColumns, rows_[row].inverse,
             bank_->inverse_norms() + column);
      }
    }
  });
}

void Scorer::pack_listed(int64_t count) {
  const int64_t mr = k_.mr, dim = bank_->dim();
  pool_.run(pieces(count, mr), [&](int64_t panel, int) {
    const int64_t first = panel * mr, height = std::min(mr, count - first);
    const float* queries[kMostPanelRows];
    for (int64_t i = 0; i < height; ++i) queries[i] = rows_[list_[first + i]].query;
    k_.pack_a(queries, height, dim, left_.data() + first * dim);
  });
}

// Computes scratch.block = left times the packed references from `column` on.
void Scorer::multiply(const float* left, int64_t rows, int64_t column, Scratch& scratch) {
  const int64_t mr = k_.mr, nr = k_.nr, dim = bank_->dim(), count = columns_from(column);
  // A panel of rows stays in the first-level cache, the references in the second.
  for (int64_t i = 0; i < rows; i += mr)
    for (int64_t j = 0; j < count; j += nr)
      for (int64_t depth = 0; depth < dim; depth += kDepth)
        k_.multiply(std::min(kDepth, dim - depth), left + i * dim + depth * mr,
                    scratch.right.data() + j * dim + depth * nr,
                    scratch.block.data() + i * kColumns + j, kColumns, depth > 0);
}

// Stores row i of the similarities from `column` on, which are products times both scales, and
// their maxima.
void Scorer::keep(int64_t i, int64_t column, const float* products, float scale,
                  const float* scales) {
  const int64_t whole = pieces(columns_from(column), kBlock) * kBlock;
  k_.scale(products, scale, scales, whole, similarities(i) + column, maxima(i) + column / kBlock);
  hide_padding(i, column);
}

// The padding of the last block must never be taken for a reference.
void Scorer::hide_padding(int64_t i, int64_t column) {
  const int64_t count = columns_from(column);
  const int64_t whole = pieces(count, kBlock) * kBlock;
  if (count == whole) return;
  float* s = similarities(i) + column;
  std::fill(s + count, s + whole, -std::numeric_limits<float>::infinity());
  const float* last = s + whole - kBlock;
  maxima(i)[(column + whole) / kBlock - 1] = last[k_.argmax(last, kBlock)];
}

}  // namespace anoco
