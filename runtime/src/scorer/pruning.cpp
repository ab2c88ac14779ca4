// Computes less than one matrix product: bounds for all references from their sketches
// (projection.hpp), and similarities only where a bound reaches the largest similarities that are
// already known.
#include <algorithm>
#include <cmath>
#include <functional>

#include "scorer/scorer.hpp"
#include "scorer/stopwatch.hpp"

namespace anoco {
namespace {

// References that are looked at first, and how many of the most similar are wanted.
constexpr int64_t kProbes = 8, kWanted = 4;
static_assert(kRoundedTogether <= kProbes, "replace_bounds has room for them");

// Rows that are tried before the whole tile is.
constexpr int64_t kTrial = 12;

// A single product costs about as much as five within a large matrix product; together with the
// search for it, and with a reference that is in no cache, as much as thirteen.
constexpr int64_t kDear = 5, kDearer = 13;

// Picks one row from each of `count` equal parts, at a different place in each: patches come in
// rows of a grid, and equal steps could hit nothing but its border.
int64_t pick(int64_t part, int64_t count, int64_t rows) {
  const double place = 0.618034 * double(part);
  const int64_t first = part * rows / count, end = (part + 1) * rows / count;
  return first + int64_t((place - std::floor(place)) * double(end - first));
}

}  // namespace

// Afterwards every value of a row that reaches its threshold is the similarity itself; other values
// may be upper bounds. Unprunable rows are left for later. Returns false and does nothing if this
// would hardly be less work.
bool Scorer::prune(int64_t rows) {
  const int64_t level = choose_level(rows);
  if (level < 0) return false;
  for (int64_t i = 0; i < rows; ++i) list_[i] = i;
  bound_listed(rows, level);
  multiply_survivors(rows);
  return true;
}

// Returns the level of the sketches that leaves the least work, or -1 if none leaves little enough.
// The work is estimated from some rows of the tile: for all levels by the number of bounds that
// survive, for the best of them by finishing the rows.
int64_t Scorer::choose_level(int64_t rows) {
  const int64_t trial = list_trial(rows);
  int64_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t level = 0; level < bank_->projection().levels(); ++level) {
    bound_listed(trial, level);
    const double work = work_of_level(level) + work_of_listed(trial);
    if (work < least) best = level;
    least = std::min(work, least);
  }
  if (least < kWorth) {
    bound_listed(trial, best);
    multiply_survivors(trial);
    try_listed(trial);
    least = work_of_level(best) + work_of_listed(trial);
  }
  forget_trial(trial);
  return least < kWorth ? best : -1;
}

// Lists some rows of the tile and returns how many.
int64_t Scorer::list_trial(int64_t rows) {
  const int64_t trial = std::min(kTrial, rows);
  for (int64_t i = 0; i < trial; ++i) list_[i] = pick(i, trial, rows);
  return trial;
}

void Scorer::try_listed(int64_t count) {
  pool_.run(count, [&](int64_t item, int thread) {
    const Stopwatch watch(scratch_[thread].retrieval_seconds);
    find_neighbors(list_[item], scratch_[thread]);
  });
}

void Scorer::forget_trial(int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Row& row = rows_[list_[i]];
    row.unprunable = row.dense = row.bounded = row.rounded = false;
    row.products = 0;
  }
}

// Returns the cost of a row of bounds, where all products of a row cost 1.
double Scorer::work_of_level(int64_t level) const {
  const Projection& projection = bank_->projection();
  return double(projection.width(level)) / double(bank_->dim()) +
         double(projection.directions(level)) / double(bank_->rows());
}

// Returns the average further cost of the listed rows, as far as they have been processed.
double Scorer::work_of_listed(int64_t count) const {
  double work = 0;
  for (int64_t k = 0; k < count; ++k) {
    const Row& row = rows_[list_[k]];
    const int64_t all = bank_->rows();
    if (row.survivors <= all / kDear)
      work += double(row.survivors * kDear + row.products * kDearer) / double(all);
    if (row.unprunable || row.dense) work += 1;
  }
  return work / double(count);
}

// Computes all similarities of the rows that bounds do not help, and of the dense rows. Lists the
// former and returns how many there are.
int64_t Scorer::complete(int64_t rows) {
  const auto list_rows = [&](bool dense_too) {
    int64_t count = 0;
    for (int64_t i = 0; i < rows; ++i)
      if (rows_[i].bounded && (rows_[i].unprunable || (dense_too && rows_[i].dense)))
        list_[count++] = i;
    return count;
  };
  const int64_t count = list_rows(true);
  if (count == 0) return 0;
  pack_listed(count);
  multiply_listed(count);
  const int64_t unfinished = list_rows(false);
  for (int64_t i = 0; i < rows; ++i) rows_[i].bounded = rows_[i].unprunable = false;
  return unfinished;
}

// Computes the packed sketches of the listed rows.
void Scorer::sketch_listed(int64_t count, int64_t level) {
  const Projection& projection = bank_->projection();
  pack_listed(count);
  pool_.run(pieces(count, k_.mr), [&](int64_t panel, int thread) {
    Scratch& scratch = scratch_[thread];
    const Stopwatch watch(scratch.retrieval_seconds);
    const int64_t first = panel * k_.mr, height = std::min(k_.mr, count - first);
    const int64_t width = projection.width(level);
    float* products = scratch.right.data();
    float* sketches = scratch.block.data();
    const float* from[kMostPanelRows];
    projection.project(level, left_.data() + first * bank_->dim(), products);
    for (int64_t i = 0; i < height; ++i) {
      from[i] = sketches + i * width;
      projection.sketch_query(level, products + i * projection.products(),
                              rows_[list_[first + i]].inverse, sketches + i * width);
    }
    k_.pack_a(from, height, width, sketches_.data() + first * width);
  });
}

// Computes the bounds of the listed rows for the whole bank, then decides how each row proceeds.
void Scorer::bound_listed(int64_t count, int64_t level) {
  const Projection& projection = bank_->projection();
  const int64_t mr = k_.mr, nr = k_.nr, width = projection.width(level);
  sketch_listed(count, level);
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

// Computes the similarities of the references with the largest bounds. The kWanted-th largest of
// them is not larger than the kWanted-th largest of all, so every reference among those has a bound
// that reaches it, and that many neighbors are found without meeting another bound. If few bounds
// reach it, only those are computed.
void Scorer::decide(int64_t i) {
  Row& row = rows_[i];
  row.bounded = true;
  std::fill(known(i), known(i) + layout_.blocks, uint64_t{0});
  float found[kProbes] = {};
  const int64_t probes = replace_bounds(i, kProbes, found);
  const int64_t wanted = std::max(std::min(kWanted, probes) - 1, int64_t{0});
  std::nth_element(found, found + wanted, found + probes, std::greater<float>());
  row.threshold = found[wanted];

  const int64_t most = bank_->rows() / kDear;
  row.survivors = 0;
  for (int64_t b = 0; b < layout_.blocks && row.survivors <= most; ++b)
    if (maxima(i)[b] >= row.threshold)
      row.survivors +=
          __builtin_popcountll(k_.at_least(similarities(i) + b * kBlock, row.threshold));
  row.unprunable = row.survivors > most;
}

// Replaces the largest values of row i, up to the first that is not a bound, by their similarities,
// which may move them further down. Returns how many, and stores them in `found`.
int64_t Scorer::replace_bounds(int64_t i, int64_t most, float* found) {
  int64_t references[kProbes] = {}, count = 0;
  while (count < most) {
    const Candidate next = take_largest(i);
    if (next.similarity == kTaken) break;
    if (is_exact(i, next.reference)) {
      put_back(i, next.reference, next.similarity);
      break;
    }
    references[count++] = next.reference;
  }
  compute(rows_[i], references, count, found);
  for (int64_t k = 0; k < count; ++k) {
    known(i)[references[k] / kBlock] |= uint64_t{1} << references[k] % kBlock;
    put_back(i, references[k], found[k]);
  }
  return count;
}

// Computes the similarities to at most kBlock references.
void Scorer::compute(const Row& row, const int64_t* references, int64_t count, float* out) const {
  const void* addresses[kBlock];
  for (int64_t k = 0; k < count; ++k) addresses[k] = bank_->address(references[k]);
  if (row.rounded)
    bank_->ordered_dots(row.query, addresses, count, out);
  else
    bank_->dots(row.query, addresses, count, out);
  for (int64_t k = 0; k < count; ++k)
    out[k] = out[k] * row.inverse * bank_->inverse_norm(references[k]);
}

// Works piece by piece of the bank, so that its references stay in the cache for all rows.
void Scorer::multiply_survivors(int64_t count) {
  const int64_t per_piece = kColumns / kBlock;
  pool_.run(pieces(layout_.blocks, per_piece), [&](int64_t piece, int thread) {
    const Stopwatch watch(scratch_[thread].retrieval_seconds);
    const int64_t end = std::min((piece + 1) * per_piece, layout_.blocks);
    for (int64_t item = 0; item < count; ++item) {
      const int64_t i = list_[item];
      if (rows_[i].unprunable) continue;
      for (int64_t block = piece * per_piece; block < end; ++block)
        if (maxima(i)[block] >= rows_[i].threshold) multiply_block(i, block);
    }
  });
}

void Scorer::multiply_block(int64_t i, int64_t block) {
  const Row& row = rows_[i];
  float* s = similarities(i) + block * kBlock;
  const uint64_t reached = k_.at_least(s, row.threshold) & ~known(i)[block];
  int64_t references[kBlock] = {}, count = 0;
  float found[kBlock];
  for (uint64_t bits = reached; bits != 0; bits &= bits - 1)
    references[count++] = block * kBlock + __builtin_ctzll(bits);
  compute(row, references, count, found);
  for (int64_t k = 0; k < count; ++k) s[references[k] % kBlock] = found[k];
  known(i)[block] |= reached;
  maxima(i)[block] = s[k_.argmax(s, kBlock)];
}

}  // namespace anoco
