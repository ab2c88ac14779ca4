#include "scorer/scorer.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "failure.hpp"

namespace anoco {
namespace {

constexpr int64_t kRowsToCheck = 64;

// Of a row of the tile, beside its numbers.
constexpr int64_t kRowBytes = sizeof(Row) + 2 * sizeof(int64_t);

// Packed references, or a piece of them for the crowd, or products of a panel with the basis.
int64_t right_floats(const Bank& bank) {
  const int64_t products = bank.projection() ? bank.projection().products() : 0;
  return std::max(kColumns * std::max(bank.dim(), kCrowdDepth), kMostPanelRows * products);
}

// Products of a group, or sketches of a panel.
int64_t block_floats(const Bank& bank) {
  const int64_t sketch = bank.projection() ? bank.projection().width() : 0;
  return std::max(kGroup * kColumns, kMostPanelRows * sketch);
}

}  // namespace

Layout::Layout(const Bank& bank, const Settings& settings) {
  stride = pieces(bank.rows(), kBlock) * kBlock;
  blocks = stride / kBlock;
  // A neighbour found and pulled on its own costs as much as 8 to 12 products of a large matrix
  // product; the crowd needs two of them for every reference.
  candidates = 16 + bank.rows() / 6;
  // Each costs as much as a dozen; what is given up then costs as many as the bank has rows.
  products = 16 + bank.rows() / 24;
  const int64_t scratch = Scratch::bytes(bank, candidates);
  sketch = bank.projection() ? bank.projection().width() : 0;
  const int64_t row =
      int64_t(sizeof(float)) * (stride + 3 * blocks + bank.dim() + sketch) + kRowBytes;
  const int64_t mr = kernels().mr;
  // The scratch of so many threads is part of the budget, whatever the number of threads: what a
  // tile prunes depends on its rows, so they must not depend on the threads.
  constexpr int64_t kThreads = 4;
  const int64_t room = std::max(settings.memory - kThreads * scratch, settings.memory / 2);
  const int64_t fit = std::min(room / row, kMostTileRows);
  tile_rows = std::max(fit / mr, int64_t{1}) * mr;
  bytes = settings.threads * scratch + tile_rows * row;
}

int64_t Scratch::bytes(const Bank& bank, int64_t candidates) {
  const int64_t floats = right_floats(bank) + block_floats(bank) +
                         kMostPanelRows * (kCrowdDepth + bank.dim()) + 3 * bank.dim();
  const int64_t candidate = sizeof(Candidate) + sizeof(float) + sizeof(void*);
  return 4 * floats + 8 * kCrowd * kColumns + candidate * (candidates + kTogether);
}

Scratch::Scratch(const Layout& layout, const Bank& bank)
    : right(right_floats(bank)),
      block(block_floats(bank)),
      left(kMostPanelRows * kCrowdDepth),
      panel(kMostPanelRows * bank.dim()),
      sums(kCrowd * kColumns),
      anchor(bank.dim()),
      drift(bank.dim()),
      moved(bank.dim()),
      candidates(layout.candidates + kTogether),
      weights(layout.candidates + kTogether),
      addresses(layout.candidates + kTogether) {}

Scorer::Scorer(std::shared_ptr<const Bank> bank, const Settings& settings)
    : bank_(std::move(bank)),
      settings_(settings),
      layout_(*bank_, settings),
      pool_(settings.threads, settings.pin),
      similarities_(layout_.tile_rows * layout_.stride),
      maxima_(layout_.tile_rows * layout_.blocks),
      known_(layout_.tile_rows * layout_.blocks),
      left_(layout_.tile_rows * bank_->dim()),
      rows_(layout_.tile_rows),
      crowd_(layout_.tile_rows),
      list_(layout_.tile_rows),
      sketches_(layout_.tile_rows * layout_.sketch),
      ones_(kColumns) {
  std::fill(ones_.data(), ones_.data() + kColumns, 1.0f);
  scratch_.reserve(size_t(settings.threads));
  for (int k = 0; k < settings.threads; ++k) scratch_.emplace_back(layout_, *bank_);
}

void Scorer::score(const float* query, int64_t rows, const Outputs& out) {
  const std::lock_guard<std::mutex> lock(one_at_a_time_);
  check(query, rows);
  for (int64_t first = 0; first < rows; first += layout_.tile_rows) {
    const int64_t count = std::min(layout_.tile_rows, rows - first);
    score_tile(query + first * bank_->dim(), count);
    write(first, count, out);
  }
  sum_up_times();
}

// Before anything is written: a bad row in the last tile must leave the outputs alone too.
void Scorer::check(const float* query, int64_t rows) {
  std::atomic<int64_t> first_bad{rows};
  pool_.run(pieces(rows, kRowsToCheck), [&](int64_t item, int) {
    const int64_t end = std::min((item + 1) * kRowsToCheck, rows);
    for (int64_t i = item * kRowsToCheck; i < end; ++i) {
      if (why_not(k_.squares(query + i * bank_->dim(), bank_->dim())) == nullptr) continue;
      int64_t known = first_bad.load();
      while (i < known && !first_bad.compare_exchange_weak(known, i)) {
      }
      return;
    }
  });
  const int64_t bad = first_bad.load();
  if (bad < rows)
    fail(ANOCO_BAD_FEATURES, "query patch " + std::to_string(bad) + " " +
                                 why_not(k_.squares(query + bad * bank_->dim(), bank_->dim())));
}

void Scorer::score_tile(const float* query, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) {
    Row& row = rows_[i] = Row{};
    row.query = query + i * bank_->dim();
  }
  compute_similarities(rows);
  for (int64_t i = 0; i < rows; ++i) list_[i] = i;
  finish_listed(rows);
  finish_listed(complete(rows));
  crowd_size_ = 0;
  for (int64_t i = 0; i < rows; ++i)
    if (rows_[i].crowded) crowd_[crowd_size_++] = i;
  if (crowd_size_ > 0) finish_crowd();
}

void Scorer::write(int64_t first, int64_t rows, const Outputs& out) const {
  for (int64_t i = 0; i < rows; ++i) {
    const Row& row = rows_[i];
    if (!std::isfinite(row.energy))
      fail(ANOCO_CORRUPT, "the energy of query patch " + std::to_string(first + i) +
                              " is not a number: the bank's memory was changed");
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
