// Finishes one row: its anchor, its neighbors in descending order from the anchor, and its energy.
#include <algorithm>
#include <cmath>
#include <limits>

#include "scorer/scorer.hpp"
#include "scorer/stopwatch.hpp"

namespace anoco {
namespace {

constexpr int64_t kRowsToFinish = 8;  // by one thread at a time

// Many rows have no more neighbors than this; they are taken one by one.
constexpr int64_t kFew = 4;

// A row with this many neighbors may be dense: nine in ten rows of real features have fewer.
constexpr int64_t kMany = 32;

}  // namespace

void Scorer::finish_listed(int64_t count) {
  pool_.run(pieces(count, kRowsToFinish), [&](int64_t item, int thread) {
    const int64_t end = std::min((item + 1) * kRowsToFinish, count);
    for (int64_t k = item * kRowsToFinish; k < end; ++k) finish_row(list_[k], scratch_[thread]);
  });
}

void Scorer::finish_row(int64_t i, Scratch& scratch) {
  Row& row = rows_[i];
  {
    const Stopwatch watch(scratch.retrieval_seconds);
    row.neighbors = find_neighbors(i, scratch);
  }
  if (row.dense || row.unprunable) return;
  const Stopwatch watch(scratch.solve_seconds);
  row.energy = solve(row, row.neighbors, scratch);
}

// Takes the references of row i in descending order of similarity, the lowest index first on a tie,
// until one is not a neighbor of the anchor. They are left in scratch.candidates; returns how many.
// If there are too many, the row is marked as dense and its similarities are restored.
int64_t Scorer::find_neighbors(int64_t i, Scratch& scratch) {
  Row& row = rows_[i];
  if (row.unprunable) return 0;
  Candidate* found = scratch.candidates.data();
  // Nothing is found only if the bank's memory was changed; then the energy must not be a number.
  found[0] = {0, std::numeric_limits<float>::quiet_NaN()};
  take_neighbors(i, 1, found);
  if (row.unprunable) return 0;
  row.anchor = found[0].reference;
  row.similarity = found[0].similarity;
  row.reach = cone_.reach(row.anchor, row.similarity);
  if (is_settled(row) && !row.bounded && bank_->rows() >= kMany) {
    // The loop below would take kMany of them and come to the same conclusion.
    row.dense = true;
    put_back(i, row.anchor, row.similarity);
    return 1;
  }
  const float* anchor = bank_->row(row.anchor, scratch.anchor.data());

  int64_t count = 1;
  for (;;) {
    const int64_t taken = take_neighbors(i, count < kFew ? 1 : kTogether, found + count);
    if (row.unprunable) return 0;
    if (taken == 0) return count;  // the whole bank
    const int64_t good = count_consistent(row, anchor, found + count, taken);
    count += good;
    if (good < taken) {
      // References that tie with the first violator are not neighbors either.
      const float violator = found[count].similarity;
      while (count > 1 && found[count - 1].similarity == violator) --count;
      return count;
    }
    if (count > layout_.candidates || (count == kMany && looks_dense(row, anchor))) break;
  }
  row.dense = true;
  for (int64_t k = 0; k < count; ++k) similarities(i)[found[k].reference] = found[k].similarity;
  return count;
}

// Returns how many of the candidates, up to the first that is not, are neighbors of the anchor:
// a_ij > s*.
int64_t Scorer::count_consistent(const Row& row, const float* anchor, const Candidate* candidates,
                                 int64_t count) const {
  if (is_within_reach(row, candidates, count)) return count;
  const void* addresses[kTogether];
  float products[kTogether];
  for (int64_t k = 0; k < count; ++k) addresses[k] = bank_->address(candidates[k].reference);
  bank_->dots(anchor, addresses, count, products);
  const float inverse = bank_->inverse_norm(row.anchor);
  int64_t good = 0;
  while (good < count &&
         products[good] * inverse * bank_->inverse_norm(candidates[good].reference) >
             row.similarity)
    ++good;
  return good;
}

bool Scorer::is_within_reach(const Row& row, const Candidate* candidates, int64_t count) const {
  for (int64_t k = 0; k < count; ++k)
    if (!(cone_.angle(candidates[k].reference) < row.reach)) return false;
  return true;
}

// Tells whether references from all parts of the bank are neighbors of the anchor too. Then the
// first violator is far away, and searching for it step by step is a waste.
bool Scorer::looks_dense(const Row& row, const float* anchor) const {
  constexpr int64_t kPicks = 32;
  for (int64_t k = 0; k < kPicks; k += kTogether) {
    Candidate picked[kTogether];
    for (int64_t c = 0; c < kTogether; ++c)
      picked[c].reference = (2 * (k + c) + 1) * bank_->rows() / (2 * kPicks);
    if (count_consistent(row, anchor, picked, kTogether) < kTogether) return false;
  }
  return true;
}

// Takes up to `count` references with the largest similarities that were not taken yet; fewer at
// the end of the bank, or if the row turns out to be unprunable.
int64_t Scorer::take_neighbors(int64_t i, int64_t count, Candidate* out) {
  Row& row = rows_[i];
  int64_t taken = 0;
  while (taken < count) {
    const Candidate found = take_largest(i);
    if (found.similarity == kTaken) break;
    if (is_exact(i, found.reference)) {
      out[taken++] = found;
      continue;
    }
    put_back(i, found.reference, found.similarity);
    float unused[kRoundedTogether];
    row.products += replace_bounds(i, row.rounded ? kRoundedTogether : kTogether, unused);
    row.unprunable = row.products > layout_.products;
    if (row.unprunable) break;
  }
  return taken;
}

// Takes the largest value of row i that was not taken yet, the lowest index on a tie.
Candidate Scorer::take_largest(int64_t i) {
  float* most = maxima(i);
  const int64_t block = k_.argmax(most, layout_.blocks);
  float* s = similarities(i) + block * kBlock;
  const int64_t at = k_.argmax(s, kBlock);
  const Candidate found{block * kBlock + at, s[at]};
  s[at] = kTaken;
  most[block] = s[k_.argmax(s, kBlock)];
  return found;
}

void Scorer::put_back(int64_t i, int64_t reference, float similarity) {
  similarities(i)[reference] = similarity;
  float& most = maxima(i)[reference / kBlock];
  most = std::max(most, similarity);
}

// Solves Eq. 2 to 10 for few neighbors. Weights are divided by lambda + d first, so that nothing
// overflows. The drift is computed from differences and f~ as a mean, so that neither cancels.
float Scorer::solve(const Row& row, int64_t count, Scratch& scratch) const {
  const int64_t dim = bank_->dim();
  const Candidate* near = scratch.candidates.data();
  double stiffness = settings_.lambda;
  for (int64_t k = 0; k < count; ++k)
    stiffness += weight(row, near[k].reference, near[k].similarity);
  for (int64_t k = 0; k < count; ++k) {
    const double w = weight(row, near[k].reference, near[k].similarity);
    scratch.weights[k] = float(w / stiffness);
    scratch.addresses[k] = bank_->address(near[k].reference);
  }
  float* drift = scratch.drift.data();
  float* moved = scratch.moved.data();
  bank_->pull({count, scratch.weights.data(), scratch.addresses.data()},
              float(settings_.lambda / stiffness), row.query, drift, moved);
  const double length = std::sqrt(k_.squares(moved, dim));
  // An f~ of length zero has no direction; its cosine is taken as 0.
  const double turn =
      length == 0 ? 1 : k_.chord(moved, 1 / length, row.query, 1 / row.norm, dim) / 2;
  return energy(k_.squares(drift, dim), turn);
}

}  // namespace anoco
