// One row: its anchor, its neighbours by walking down from the anchor, its energy.
#include <algorithm>
#include <cmath>
#include <limits>

#include "scorer/scorer.hpp"
#include "scorer/stopwatch.hpp"

namespace anoco {
namespace {

constexpr float kTaken = -std::numeric_limits<float>::infinity();
constexpr int64_t kRowsToFinish = 8;  // by one thread at a time

// Neighbours that make a row suspect: nine in ten rows of real features have fewer.
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
    row.neighbors = find_neighbours(i, scratch);
  }
  if (row.crowded || row.hopeless) return;
  const Stopwatch watch(scratch.solve_seconds);
  row.energy = solve(row, row.neighbors, scratch);
}

// Takes the references of row i in descending order of similarity, the lowest index first on a
// tie, until one is no neighbour of the anchor. They are left in scratch.candidates; returns how
// many. Where there are too many, the row is called crowded and its similarities are put back.
int64_t Scorer::find_neighbours(int64_t i, Scratch& scratch) {
  Row& row = rows_[i];
  if (row.hopeless) return 0;
  if (row.exact_from != kAllExact)
    std::fill(scratch.known.data(), scratch.known.data() + layout_.blocks, uint64_t{0});
  Candidate* found = scratch.candidates.data();
  found[0] = take_largest(i, scratch);
  if (row.hopeless) return 0;
  row.anchor = found[0].reference;
  row.similarity = found[0].similarity;
  const float* anchor = bank_->row(row.anchor, scratch.anchor.data());

  int64_t count = 1;
  for (;;) {
    const Candidate next = take_largest(i, scratch);
    if (row.hopeless) return 0;
    if (next.similarity == kTaken) return count;  // the whole bank
    if (!consistent(row, anchor, next.reference)) {
      // What ties with the first violator is no neighbour either.
      while (count > 1 && found[count - 1].similarity == next.similarity) --count;
      return count;
    }
    found[count++] = next;
    if (count > layout_.candidates || (count == kMany && looks_crowded(row, anchor))) break;
  }
  row.crowded = true;
  for (int64_t k = 0; k < count; ++k) similarities(i)[found[k].reference] = found[k].similarity;
  return count;
}

// Whether the reference is a neighbour of the anchor: a_ij > s*.
bool Scorer::consistent(const Row& row, const float* anchor, int64_t reference) const {
  return bank_->dot(anchor, reference) * bank_->inverse_norm(row.anchor) *
             bank_->inverse_norm(reference) >
         row.similarity;
}

// Whether references picked from everywhere are neighbours of the anchor too: then the first
// violator is far away, and walking there is wasted.
bool Scorer::looks_crowded(const Row& row, const float* anchor) const {
  constexpr int64_t kPicks = 8;
  int64_t found = 0;
  for (int64_t k = 0; k < kPicks; ++k)
    found += consistent(row, anchor, (2 * k + 1) * bank_->rows() / (2 * kPicks));
  return found >= kPicks - 1;
}

// The reference of the largest similarity that was not taken yet. A bound on the way there is
// replaced by the similarity itself, which may send it further down.
Candidate Scorer::take_largest(int64_t i, Scratch& scratch) {
  Row& row = rows_[i];
  float* most = maxima(i);
  for (;;) {
    const int64_t block = k_.argmax(most, layout_.blocks);
    float* s = similarities(i) + block * kBlock;
    const int64_t at = k_.argmax(s, kBlock);
    const Candidate found{block * kBlock + at, s[at]};
    const uint64_t bit = uint64_t{1} << at;
    const bool bound = found.similarity < row.exact_from && (scratch.known[block] & bit) == 0;
    if (bound && found.similarity != kTaken) {
      s[at] = similarity(row, found.reference);
      scratch.known[block] |= bit;
      row.hopeless = ++row.products > layout_.products;
    } else {
      s[at] = kTaken;
    }
    most[block] = s[k_.argmax(s, kBlock)];
    if (s[at] == kTaken || row.hopeless) return found;
  }
}

// Eq. 2 to 10 for few neighbours. Weights are divided by lambda + d first, so that nothing
// overflows. Written as differences the drift does not cancel; written as a mean, f~ does not.
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
