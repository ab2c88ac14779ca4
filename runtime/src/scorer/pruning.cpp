// Less than one matrix product: bounds for all references from their sketches (projection.hpp),
// the similarities themselves only where a bound reaches the largest that is known already.
#include <algorithm>
#include <cmath>

#include "scorer/scorer.hpp"
#include "scorer/stopwatch.hpp"

namespace anoco {
namespace {

// Rows that are tried before a tile is.
constexpr int64_t kTrial = 16;

// One product on its own costs about as much as five within a large matrix product; with the
// search for it, and a reference that is in no cache, as much as twenty.
constexpr int64_t kDear = 5, kDearer = 20;

// What the trial promises to leave of the work must be less than this, to be worth the detour.
constexpr double kWorth = 0.7;

// One row of each of `count` equal parts, each time at another place of the part: patches come in
// rows of a grid, and equal steps may meet nothing but its border.
int64_t pick(int64_t part, int64_t count, int64_t rows) {
  const double place = 0.618034 * double(part);
  const int64_t first = part * rows / count, end = (part + 1) * rows / count;
  return first + int64_t((place - std::floor(place)) * double(end - first));
}

}  // namespace

// Afterwards every value of a row is the similarity itself or, where it is below row.exact_from,
// possibly an upper bound; hopeless rows have to wait. False, and nothing done, where all that
// would hardly be less work.
bool Scorer::prune(int64_t rows) {
  if (!worth_pruning(rows)) return false;
  for (int64_t i = 0; i < rows; ++i) list_[i] = i;
  bound_listed(rows);
  multiply_survivors(rows);
  return true;
}

// Tries some rows up to their neighbours, and counts what that took.
bool Scorer::worth_pruning(int64_t rows) {
  const int64_t trial = std::min(kTrial, rows);
  for (int64_t i = 0; i < trial; ++i) list_[i] = pick(i, trial, rows);
  bound_listed(trial);
  multiply_survivors(trial);
  pool_.run(trial, [&](int64_t item, int thread) {
    Scratch& scratch = scratch_[thread];
    const Stopwatch watch(scratch.retrieval_seconds);
    find_neighbours(list_[item], scratch);
  });
  double work = 0;
  for (int64_t i = 0; i < trial; ++i) {
    Row& row = rows_[list_[i]];
    const auto products = double(row.survivors * kDear + row.products * kDearer);
    work += row.hopeless ? 1 : products / double(bank_->rows());
    row.hopeless = row.crowded = false;
    row.products = 0;
    row.exact_from = kAllExact;
  }
  return work < kWorth * double(trial);
}

// All similarities of the rows that bounds do not help. They are listed; returns how many.
int64_t Scorer::multiply_hopeless(int64_t rows) {
  int64_t count = 0;
  for (int64_t i = 0; i < rows; ++i)
    if (rows_[i].hopeless) {
      rows_[i].hopeless = false;
      rows_[i].exact_from = kAllExact;
      list_[count++] = i;
    }
  if (count > 0) {
    pack_listed(count);
    multiply_listed(count);
  }
  return count;
}

// Sketches of the listed rows, packed.
void Scorer::sketch_listed(int64_t count) {
  const Projection& projection = bank_->projection();
  pack_listed(count);
  pool_.run(pieces(count, k_.mr), [&](int64_t panel, int thread) {
    Scratch& scratch = scratch_[thread];
    const Stopwatch watch(scratch.retrieval_seconds);
    const int64_t first = panel * k_.mr, height = std::min(k_.mr, count - first);
    const int64_t width = projection.width();
    float* products = scratch.right.data();
    float* sketches = scratch.block.data();
    const float* from[kMostPanelRows];
    projection.project(left_.data() + first * bank_->dim(), products);
    for (int64_t i = 0; i < height; ++i) {
      from[i] = sketches + i * width;
      projection.finish(products + i * projection.products(), rows_[list_[first + i]].inverse, 1.0f,
                        sketches + i * width);
    }
    k_.pack_a(from, height, width, sketches_.data() + first * width);
  });
}

// Bounds of the listed rows for the whole bank, then what each row will do with them.
void Scorer::bound_listed(int64_t count) {
  const Projection& projection = bank_->projection();
  const int64_t mr = k_.mr, nr = k_.nr, width = projection.width();
  sketch_listed(count);
  for_each_piece(count, [&](int64_t column, int64_t first, int64_t end, Scratch& scratch) {
    for (int64_t top = first; top < end; top += kGroup) {
      const int64_t height = std::min(kGroup, end - top);
      for (int64_t j = 0; j < columns_from(column); j += nr)
        for (int64_t i = 0; i < height; i += mr)
          k_.multiply(width, sketches_.data() + (top + i) * width, projection.sketches(column + j),
                      scratch.block.data() + i * kColumns + j, kColumns, false);
      for (int64_t i = 0; i < height; ++i)
        keep(list_[top + i], column, scratch.block.data() + i * kColumns, 1.0f, ones_.data());
    }
  });
  pool_.run(count, [&](int64_t item, int thread) {
    const Stopwatch watch(scratch_[thread].retrieval_seconds);
    decide(list_[item]);
  });
}

// The reference with the largest bound has a similarity that the anchor's cannot be below. Where
// few bounds reach it, only those are worth a product.
void Scorer::decide(int64_t i) {
  Row& row = rows_[i];
  const int64_t block = k_.argmax(maxima(i), layout_.blocks);
  const int64_t at = k_.argmax(similarities(i) + block * kBlock, kBlock);
  const float least = similarity(row, block * kBlock + at);
  const int64_t most = bank_->rows() / kDear;
  row.survivors = 0;
  for (int64_t b = 0; b < layout_.blocks && row.survivors <= most; ++b)
    if (maxima(i)[b] >= least)
      row.survivors += __builtin_popcountll(k_.at_least(similarities(i) + b * kBlock, least));
  row.exact_from = least;
  row.hopeless = row.survivors > most;
}

// Piece by piece of the bank, so that its references stay in the cache for all rows.
void Scorer::multiply_survivors(int64_t count) {
  const int64_t per_piece = kColumns / kBlock;
  pool_.run(pieces(layout_.blocks, per_piece), [&](int64_t piece, int thread) {
    const Stopwatch watch(scratch_[thread].retrieval_seconds);
    const int64_t end = std::min((piece + 1) * per_piece, layout_.blocks);
    for (int64_t item = 0; item < count; ++item) {
      const int64_t i = list_[item];
      if (rows_[i].hopeless) continue;
      for (int64_t block = piece * per_piece; block < end; ++block)
        if (maxima(i)[block] >= rows_[i].exact_from) multiply_block(i, block);
    }
  });
}

void Scorer::multiply_block(int64_t i, int64_t block) {
  const Row& row = rows_[i];
  float* s = similarities(i) + block * kBlock;
  for (uint64_t bits = k_.at_least(s, row.exact_from); bits != 0; bits &= bits - 1) {
    const int64_t at = __builtin_ctzll(bits);
    s[at] = similarity(row, block * kBlock + at);
  }
  maxima(i)[block] = s[k_.argmax(s, kBlock)];
}

}  // namespace anoco
