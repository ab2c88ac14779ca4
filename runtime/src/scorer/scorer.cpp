#include "scorer/scorer.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "failure.hpp"

namespace anoco {
namespace {

constexpr int64_t kRowsToCheck = 64;

// The size of packed references, of a piece of them for dense rows, or of the products of a panel
// with the basis, whichever is largest.
int64_t right_floats(const Bank& bank) {
  const int64_t products = bank.projection() ? bank.projection().products() : 0;
  return std::max(kColumns * std::max(bank.dim(), kSumDepth), kMostPanelRows * products);
}

// The size of the products of a group, or of the sketches of a panel.
int64_t block_floats(const Bank& bank) {
  const int64_t sketch = bank.projection() ? bank.projection().width() : 0;
  return std::max(kGroup * kColumns, kMostPanelRows * sketch);
}

// The patch of the grid that was gathered as this row, see Scorer::score.
int64_t patch_of(int64_t row, const uint8_t* scored) {
  if (scored == nullptr) return row;
  int64_t patch = 0;
  while (scored[patch] == 0 || row-- > 0) ++patch;
  return patch;
}

}  // namespace

Layout::Layout(const Bank& bank, const Settings& settings) {
  stride = pieces(bank.rows(), kBlock) * kBlock;
  blocks = stride / kBlock;
  // A neighbor that is found and added on its own costs as much as 8 to 12 products of a large
  // matrix product; dense rows need two of them for every reference.
  candidates = 16 + bank.rows() / 6;
  // Each of them costs as much as a dozen; giving up costs as many as the bank has rows.
  products = 16 + bank.rows() / 24;
  const int64_t scratch = Scratch::bytes(bank, candidates);
  sketch = bank.projection() ? bank.projection().width() : 0;
  const int64_t row = Scorer::tile_bytes(bank, *this, 1) - Scorer::tile_bytes(bank, *this, 0);
  const int64_t mr = kernels().mr;
  // The scratch of this many threads is part of the budget, whatever the number of threads: what a
  // tile prunes depends on its rows, so they must not depend on the threads.
  // It is counted with smaller sums than there are, because other tiles would change the last bits
  // of the scores of existing products.
  constexpr int64_t kThreads = 4, kCountedSums = 192 * kColumns;
  const int64_t counted = scratch - 8 * (kDenseRows * kDenseColumns - kCountedSums);
  const int64_t room = std::max(settings.memory - kThreads * counted, settings.memory / 2);
  const int64_t fit = std::min(room / row, kMostTileRows);
  tile_rows = std::max(fit / mr, int64_t{1}) * mr;
  bytes = settings.threads * scratch + Scorer::tile_bytes(bank, *this, tile_rows);
}

template <class Each>
void Scratch::each_buffer(const Bank& bank, int64_t candidates, Each&& each) {
  each(&Scratch::right, right_floats(bank));
  each(&Scratch::block, block_floats(bank));
  each(&Scratch::left, kMostPanelRows * kColumns);
  each(&Scratch::panel, kMostPanelRows * bank.dim());
  each(&Scratch::sums, kDenseRows * kDenseColumns);
  each(&Scratch::anchor, bank.dim());
  each(&Scratch::drift, bank.dim());
  each(&Scratch::moved, bank.dim());
  each(&Scratch::candidates, candidates + kTogether);
  each(&Scratch::weights, candidates + kTogether);
  each(&Scratch::addresses, candidates + kTogether);
}

int64_t Scratch::bytes(const Bank& bank, int64_t candidates) {
  return count_bytes([&](auto& each) { each_buffer(bank, candidates, each); });
}

Scratch::Scratch(const Bank& bank, int64_t candidates) {
  each_buffer(bank, candidates, BufferAllocator{*this});
}

template <class Each>
void Scorer::each_buffer(const Bank& bank, const Layout& layout, int64_t rows, Each&& each) {
  each(&Scorer::similarities_, rows * layout.stride);
  each(&Scorer::maxima_, rows * layout.blocks);
  each(&Scorer::known_, rows * layout.blocks);
  each(&Scorer::left_, rows * bank.dim());
  each(&Scorer::rows_, rows);
  each(&Scorer::dense_rows_, rows);
  each(&Scorer::list_, rows);
  each(&Scorer::sketches_, rows * layout.sketch);
  each(&Scorer::ones_, kColumns);
}

int64_t Scorer::tile_bytes(const Bank& bank, const Layout& layout, int64_t rows) {
  return count_bytes([&](auto& each) { each_buffer(bank, layout, rows, each); });
}

int64_t Scorer::bytes(const std::shared_ptr<const Bank>& bank, const Settings& settings) {
  return Layout(*bank, settings).bytes;
}

Scorer::Scorer(std::shared_ptr<const Bank> bank, const Settings& settings)
    : bank_(std::move(bank)),
      cone_(bank_->cone()),
      settings_(settings),
      layout_(*bank_, settings),
      pool_(settings.threads, settings.pin) {
  each_buffer(*bank_, layout_, layout_.tile_rows, BufferAllocator{*this});
  std::fill(ones_.data(), ones_.data() + kColumns, 1.0f);
  scratch_.reserve(size_t(settings.threads));
  for (int k = 0; k < settings.threads; ++k) scratch_.emplace_back(*bank_, layout_.candidates);
}

void Scorer::score(const float* query, int64_t rows, const Outputs& out, const uint8_t* scored) {
  const std::lock_guard<std::mutex> lock(one_at_a_time_);
  check(query, rows, scored);
  for (int64_t first = 0; first < rows; first += layout_.tile_rows) {
    const int64_t count = std::min(layout_.tile_rows, rows - first);
    score_tile(query + first * bank_->dim(), count);
    write(first, count, out, scored);
  }
  sum_up_times();
}

// The check comes before anything is written, because a bad row in the last tile must leave the
// outputs unchanged too.
void Scorer::check(const float* query, int64_t rows, const uint8_t* scored) {
  std::atomic<int64_t> first_bad{rows};
  pool_.run(pieces(rows, kRowsToCheck), [&](int64_t item, int) {
    const int64_t end = std::min((item + 1) * kRowsToCheck, rows);
    for (int64_t i = item * kRowsToCheck; i < end; ++i) {
      if (norm_problem(k_.squares(query + i * bank_->dim(), bank_->dim())) == nullptr) continue;
      int64_t known = first_bad.load();
      while (i < known && !first_bad.compare_exchange_weak(known, i)) {
      }
      return;
    }
  });
  const int64_t bad = first_bad.load();
  if (bad < rows)
    fail(ANOCO_BAD_FEATURES,
         "query patch " + std::to_string(patch_of(bad, scored)) + " " +
             norm_problem(k_.squares(query + bad * bank_->dim(), bank_->dim())));
}

void Scorer::score_tile(const float* query, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) {
    Row& row = rows_[i] = Row{};
    row.query = query + i * bank_->dim();
  }
  compute_similarities(rows);
  for (int64_t i = 0; i < rows; ++i) list_[i] = i;
  finish_listed(rows);
  finish_listed(retry_rounded(rows));
  finish_listed(complete(rows));
  dense_count_ = 0;
  for (int64_t i = 0; i < rows; ++i)
    if (rows_[i].dense) dense_rows_[dense_count_++] = i;
  if (dense_count_ > 0) finish_dense_rows();
}

void Scorer::write(int64_t first, int64_t rows, const Outputs& out, const uint8_t* scored) const {
  for (int64_t i = 0; i < rows; ++i) {
    const Row& row = rows_[i];
    if (!std::isfinite(row.energy))
      fail(ANOCO_CORRUPT,
           "the energy of query patch " + std::to_string(patch_of(first + i, scored)) +
               " is not a number: the bank's memory was changed",
           "keep the features as they are while a scorer uses them, or let the bank copy them");
    if (out.energy != nullptr) out.energy[first + i] = row.energy;
    if (out.anchor != nullptr) out.anchor[first + i] = row.anchor;
    if (out.similarity != nullptr) out.similarity[first + i] = row.similarity;
    if (out.neighbors != nullptr) out.neighbors[first + i] = row.neighbors;
  }
}

void Scorer::sum_up_times() {
  double retrieval = 0, solve = 0;
  for (Scratch& scratch : scratch_) {
    retrieval += scratch.retrieval_seconds;
    solve += scratch.solve_seconds;
    scratch.retrieval_seconds = scratch.solve_seconds = 0;
  }
  retrieval_share_ = retrieval + solve > 0 ? retrieval / (retrieval + solve) : 0;
}

double Scorer::weight(const Row& row, int64_t reference, float similarity) const {
  const double r = bank_->norm(reference);
  return std::max(double(similarity), settings_.floor) * 2 * row.norm * r / (row.norm + r);
}

float Scorer::energy(double drift_squares, double turn) const {
  if (settings_.metric == ANOCO_METRIC_L2) return float(drift_squares);
  if (settings_.metric == ANOCO_METRIC_COSINE) return float(turn);
  return float(drift_squares * turn);
}

}  // namespace anoco
