// Computes bounds for all references from rounded numbers (rounding.hpp), and similarities only
// where a bound reaches the largest similarities that are already known. Those are computed with
// the bits of the matrix product, so the results are the same whether this is done or not.
#include "scorer/rounding.hpp"

#include <algorithm>

#include "scorer/scorer.hpp"
#include "scorer/stopwatch.hpp"

namespace anoco {
namespace {

// In smaller banks a row's products take less time than looking for those that are needed: 784 x
// 1024 and 1568 x 384 gain a tenth, 512 x 1024 and 6272 x 112 nothing.
constexpr int64_t kLeastNumbers = 600'000;

// The fewest rows that are worth rounding the whole bank for.
constexpr int64_t kLeastToRetry = 32;

// The cost of a row of bounds, where all products of a row cost 1.
constexpr double kWorkOfBounds = 0.55;

}  // namespace

// Afterwards every value of a row that reaches its threshold is the similarity itself; other values
// may be upper bounds. Unprunable rows are left for later. Returns false and does nothing if this
// would hardly be less work.
bool Scorer::prune_rounded(int64_t rows) {
  if (!may_round() || !is_rounding_worth_it(rows)) return false;
  for (int64_t i = 0; i < rows; ++i) list_[i] = i;
  bound_rounded(rows);
  multiply_rounded_survivors(rows);
  return true;
}

// Estimates the work from some rows of the tile: by the number of bounds that survive and, if those
// are few, by finishing the rows.
bool Scorer::is_rounding_worth_it(int64_t rows) {
  if (settings_.rounding == Rounding::kAlways) return true;
  const int64_t trial = list_trial(rows);
  bound_rounded(trial);
  double work = kWorkOfBounds + work_of_listed(trial);
  if (work < kWorth) {
    multiply_rounded_survivors(trial);
    try_listed(trial);
    work = kWorkOfBounds + work_of_listed(trial);
  }
  forget_trial(trial);
  return work < kWorth;
}

bool Scorer::may_round() const {
  if (k_.rounded == nullptr || settings_.rounding == Rounding::kNever) return false;
  return settings_.rounding == Rounding::kAlways || bank_->rows() * bank_->dim() >= kLeastNumbers;
}

// Tries the rows again that bounds from directions did not help. Lists them and returns how many
// there are.
int64_t Scorer::retry_rounded(int64_t rows) {
  if (!may_round()) return 0;
  int64_t count = 0;
  for (int64_t i = 0; i < rows; ++i)
    if (rows_[i].unprunable && !rows_[i].rounded) list_[count++] = i;
  if (count < kLeastToRetry && settings_.rounding != Rounding::kAlways) return 0;
  for (int64_t k = 0; k < count; ++k) {
    rows_[list_[k]].unprunable = false;
    rows_[list_[k]].products = 0;
  }
  if (count > 0) bound_rounded(count);
  multiply_rounded_survivors(count);
  return count;
}

// Computes the bounds of the listed rows for the whole bank, then decides how each row proceeds.
void Scorer::bound_rounded(int64_t count) {
  const int64_t mr = k_.mr, nr = k_.nr, pairs = rounded_pairs(bank_->dim());
  const float allowance = rounding_allowance(bank_->dim());
  round_listed(count);
  for_each_piece(count, [&](int64_t column, int64_t first, int64_t end, Scratch& scratch) {
    round_references(column, scratch);
    const int64_t whole = pieces(columns_from(column), kBlock) * kBlock;
    for (int64_t top = first; top < end; top += kGroup) {
      const int64_t height = std::min(kGroup, end - top);
      for (int64_t j = 0; j < columns_from(column); j += nr)
        for (int64_t i = 0; i < height; i += mr)
          k_.rounded->multiply(pairs, left_.data() + (top + i) * pairs,
                               scratch.right.data() + j * pairs,
                               scratch.block.data() + i * kColumns + j, kColumns);
      for (int64_t i = 0; i < height; ++i) {
        const int64_t at = list_[top + i];
        const float error = rows_[at].error;
        k_.rounded->bound(scratch.block.data() + i * kColumns,
                          {rows_[at].inverse, 1 + error, error + allowance},
                          bank_->inverse_norms() + column, scratch.left.data(), whole,
                          similarities(at) + column, maxima(at) + column / kBlock);
        hide_padding(at, column);
      }
    }
  });
  pool_.run(count, [&](int64_t item, int thread) {
    const Stopwatch watch(scratch_[thread].retrieval_seconds);
    decide(list_[item]);
  });
}

// Rounds and packs the listed rows, in place of their packed queries.
void Scorer::round_listed(int64_t count) {
  const int64_t mr = k_.mr, dim = bank_->dim(), pairs = rounded_pairs(dim);
  pool_.run(pieces(count, mr), [&](int64_t panel, int thread) {
    Scratch& scratch = scratch_[thread];
    const Stopwatch watch(scratch.retrieval_seconds);
    const int64_t first = panel * mr, height = std::min(mr, count - first);
    const float* from[kMostPanelRows];
    for (int64_t i = 0; i < height; ++i) {
      Row& row = rows_[list_[first + i]];
      float* rounded = scratch.right.data() + i * pairs;
      row.error = rounding_error(k_.rounded->round(row.query, dim, rounded), row.inverse, dim);
      row.rounded = true;
      from[i] = rounded;
    }
    k_.pack_a(from, height, pairs, left_.data() + first * pairs);
  });
}

// Rounds and packs kColumns references: scratch.right begins with what is packed, its second half
// holds nr rounded references at a time; scratch.left holds their errors.
void Scorer::round_references(int64_t column, Scratch& scratch) {
  const int64_t nr = k_.nr, pairs = rounded_pairs(bank_->dim()), count = columns_from(column);
  float* packed = scratch.right.data();
  float* rounded = packed + kColumns * pairs;
  std::fill(scratch.left.data(), scratch.left.data() + kColumns, 0.0f);
  for (int64_t j = 0; j < count; j += nr, packed += nr * pairs) {
    const int64_t width = std::min(nr, count - j);
    for (int64_t c = 0; c < width; ++c) {
      const int64_t reference = column + j + c;
      const float squares = bank_->round(reference, rounded + c * pairs);
      scratch.left[j + c] = rounding_error(squares, bank_->inverse_norm(reference), bank_->dim());
    }
    k_.pack_b(rounded, pairs, width, pairs, packed);
  }
}

void Scorer::multiply_rounded_survivors(int64_t count) {
  pool_.run(count, [&](int64_t item, int thread) {
    const Stopwatch watch(scratch_[thread].retrieval_seconds);
    if (!rows_[list_[item]].unprunable) replace_survivors(list_[item]);
  });
}

// Replaces all bounds of row i that reach its threshold by their similarities, many at a time
// because sixteen take as long as one.
void Scorer::replace_survivors(int64_t i) {
  int64_t references[kBlock] = {}, count = 0;
  for (int64_t block = 0; block < layout_.blocks; ++block) {
    if (!(maxima(i)[block] >= rows_[i].threshold)) continue;
    uint64_t bits = k_.at_least(similarities(i) + block * kBlock, rows_[i].threshold);
    for (bits &= ~known(i)[block]; bits != 0; bits &= bits - 1) {
      references[count++] = block * kBlock + __builtin_ctzll(bits);
      if (count < kBlock) continue;
      replace(i, references, count);
      count = 0;
    }
  }
  replace(i, references, count);
}

// Replaces the bounds of at most kBlock references, in ascending order, by their similarities.
void Scorer::replace(int64_t i, const int64_t* references, int64_t count) {
  float found[kBlock];
  compute(rows_[i], references, count, found);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t block = references[k] / kBlock;
    float* s = similarities(i) + block * kBlock;
    s[references[k] % kBlock] = found[k];
    known(i)[block] |= uint64_t{1} << references[k] % kBlock;
    if (k + 1 == count || references[k + 1] / kBlock != block)
      maxima(i)[block] = s[k_.argmax(s, kBlock)];
  }
}

}  // namespace anoco
