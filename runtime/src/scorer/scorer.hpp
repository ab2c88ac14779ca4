// Scores patches on a CPU (section 3 of DESIGN.md): exactly, in tiles of query rows, without an N_q
// x N_r matrix.
//
// For each tile all similarities are computed first (similarities.cpp), then each row is finished
// on its own (rows.cpp): references are visited in descending order of similarity until the first
// violator, which for most rows is a handful. Rows with very many neighbors are left to the end of
// the tile and finished together by two more matrix products (dense_rows.cpp).
//
// If bounds rule most references out, a tile takes less than one matrix product: bounds from few
// directions (pruning.cpp), or from products of rounded numbers (rounding.cpp).
//
// How a value is computed depends on the rows of a tile and on the bank, never on the threads or on
// how work is cut into pieces, so the results have the same bits whatever the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "buffer_list.hpp"
#include "scorer/layout.hpp"
#include "scorer/stopwatch.hpp"
#include "threads/pool.hpp"

namespace anoco {

struct Outputs {
  float* energy;
  int64_t* anchor;
  float* similarity;
  int64_t* neighbors;
};

// Replaces a similarity whose reference was taken.
constexpr float kTaken = -std::numeric_limits<float>::infinity();

inline int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

struct Candidate {
  int64_t reference;
  float similarity;
};

// The memory that one thread writes to.
struct Scratch {
  Scratch(const Bank& bank, int64_t candidates);
  static int64_t bytes(const Bank& bank, int64_t candidates);

  Buffer<float> right;   // packed references
  Buffer<float> block;   // kGroup x kColumns products, or packed weights of dense rows
  Buffer<float> left;    // errors of rounded references
  Buffer<float> panel;   // anchors of the panel in float32
  Buffer<double> sums;   // kDenseRows x kDenseColumns sums
  Buffer<float> anchor;  // one reference in float32
  Buffer<float> drift, moved;
  Buffer<Candidate> candidates;
  Buffer<float> weights;          // of the candidates
  Buffer<const void*> addresses;  // of their features
  double retrieval_seconds = 0, solve_seconds = 0;

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(const Bank& bank, int64_t candidates, Each&& each);
};

// The state of a query patch.
struct Row {
  const float* query;
  double norm;
  float inverse;
  float error;  // of rounding it
  int64_t anchor;
  float similarity;
  float reach;  // references within it are neighbors for certain, see cone.hpp
  int64_t neighbors;
  float energy;
  bool dense;         // has too many neighbors to take them one by one
  bool rounded;       // its bounds come from rounded numbers, its products from ordered_dots
  double weights;     // d_i of a dense row
  bool bounded;       // values that known_ does not name are bounds on similarities
  bool unprunable;    // bounds do not help, so it needs all similarities
  float threshold;    // bounds that reach it are replaced before the row is finished
  int64_t survivors;  // number of bounds that reach it
  int64_t products;   // computed one by one, because a bound below the threshold was reached
};

class Scorer {
 public:
  Scorer(std::shared_ptr<const Bank> bank, const Settings& settings);
  static int64_t bytes(const std::shared_ptr<const Bank>& bank, const Settings& settings);
  // Returns the bytes that a tile of so many rows takes, without the scratch of the threads.
  static int64_t tile_bytes(const Bank& bank, const Layout& layout, int64_t rows);

  // Throws a Failure; nothing is written then, unless its status is ANOCO_CORRUPT. If the rows are
  // those patches of a grid for which `scored` has a 1, the failure names the patch of the grid.
  void score(const float* query, int64_t rows, const Outputs& out, const uint8_t* scored = nullptr);
  double retrieval_share() const { return retrieval_share_.load(); }

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(const Bank& bank, const Layout& layout, int64_t rows, Each&& each);
  void check(const float* query, int64_t rows, const uint8_t* scored);
  void score_tile(const float* query, int64_t rows);
  void write(int64_t first, int64_t rows, const Outputs& out, const uint8_t* scored) const;
  void sum_up_times();

  // Calls work(column, first, end, scratch) for pieces of `rows` rows and kColumns of the bank. A
  // piece has as many rows as leave each thread some pieces, because the bank is packed less often
  // then.
  template <class Work>
  void for_each_piece(int64_t rows, Work&& work) {
    constexpr int64_t kPiecesPerThread = 16;
    const int64_t columns = pieces(bank_->rows(), kColumns);
    const int64_t parts = pieces(kPiecesPerThread * pool_.threads(), columns);
    const int64_t height = pieces(std::max(rows / parts, kLeastRows), k_.mr) * k_.mr;
    pool_.run(pieces(rows, height) * columns, [&](int64_t item, int thread) {
      Scratch& scratch = scratch_[thread];
      const Stopwatch watch(scratch.retrieval_seconds);
      const int64_t first = item / columns * height;
      work(item % columns * kColumns, first, std::min(first + height, rows), scratch);
    });
  }
  int64_t columns_from(int64_t column) const { return std::min(kColumns, bank_->rows() - column); }

  // similarities.cpp
  void compute_similarities(int64_t rows);
  void pack_listed(int64_t count);
  void multiply_listed(int64_t count);
  void multiply(const float* left, int64_t rows, int64_t column, Scratch& scratch);
  void keep(int64_t i, int64_t column, const float* products, float scale, const float* scales);
  void hide_padding(int64_t i, int64_t column);

  // pruning.cpp
  bool prune(int64_t rows);
  int64_t choose_level(int64_t rows);
  int64_t list_trial(int64_t rows);
  void try_listed(int64_t count);
  void forget_trial(int64_t count);
  double work_of_level(int64_t level) const;
  double work_of_listed(int64_t count) const;
  void sketch_listed(int64_t count, int64_t level);
  void bound_listed(int64_t count, int64_t level);
  void decide(int64_t i);
  int64_t replace_bounds(int64_t i, int64_t most, float* found);
  void compute(const Row& row, const int64_t* references, int64_t count, float* out) const;
  void multiply_survivors(int64_t count);
  void multiply_block(int64_t i, int64_t block);
  int64_t complete(int64_t rows);

  // rounding.cpp
  bool prune_rounded(int64_t rows);
  bool is_rounding_worth_it(int64_t rows);
  bool may_round() const;
  int64_t retry_rounded(int64_t rows);
  void bound_rounded(int64_t count);
  void round_listed(int64_t count);
  void round_references(int64_t column, Scratch& scratch);
  void multiply_rounded_survivors(int64_t count);
  void replace_survivors(int64_t i);
  void replace(int64_t i, const int64_t* references, int64_t count);

  // rows.cpp
  void finish_listed(int64_t count);
  void finish_row(int64_t i, Scratch& scratch);
  int64_t find_neighbors(int64_t i, Scratch& scratch);
  int64_t count_consistent(const Row& row, const float* anchor, const Candidate* candidates,
                           int64_t count) const;
  bool is_within_reach(const Row& row, const Candidate* candidates, int64_t count) const;
  bool is_settled(const Row& row) const { return cone_.widest() < row.reach; }
  bool looks_dense(const Row& row, const float* anchor) const;
  int64_t take_neighbors(int64_t i, int64_t count, Candidate* out);
  Candidate take_largest(int64_t i);
  void put_back(int64_t i, int64_t reference, float similarity);
  float solve(const Row& row, int64_t count, Scratch& scratch) const;

  // dense_rows.cpp
  void finish_dense_rows();
  int64_t list_unsettled();
  void pack_anchors(int64_t count);
  bool is_open(int64_t first, int64_t end, int64_t column) const;
  void find_violators(int64_t first, int64_t end, int64_t column, Scratch& scratch);
  void weigh_dense_rows();
  float find_violator(int64_t i);
  void pull_dense_rows();
  void pull_piece(int64_t first, int64_t height, int64_t column, int64_t width, Scratch& scratch);
  void pull_depth(int64_t first, int64_t height, int64_t from, int64_t depth, int64_t width,
                  Scratch& scratch);
  void solve_dense_rows();

  // Tells whether the value is the similarity itself and not a bound on it.
  bool is_exact(int64_t i, int64_t reference) {
    return !rows_[i].bounded ||
           (known(i)[reference / kBlock] >> reference % kBlock & uint64_t{1}) != 0;
  }
  double weight(const Row& row, int64_t reference, float similarity) const;
  float energy(double drift_squares, double turn) const;
  float* similarities(int64_t i) { return similarities_.data() + i * layout_.stride; }
  float* maxima(int64_t i) { return maxima_.data() + i * layout_.blocks; }
  uint64_t* known(int64_t i) { return known_.data() + i * layout_.blocks; }

  const Kernels& k_ = kernels();
  std::shared_ptr<const Bank> bank_;
  const Cone& cone_;
  Settings settings_;
  Layout layout_;
  Pool pool_;
  std::mutex one_at_a_time_;
  std::atomic<double> retrieval_share_{0};

  std::vector<Scratch> scratch_;  // of each thread
  Buffer<float> similarities_;    // tile_rows x stride
  Buffer<float> maxima_;          // of each block of each row
  Buffer<uint64_t> known_;        // a bit for each value of a bounded row that is not a bound
  Buffer<float> left_;            // packed rows: queries, then anchors of the dense rows
  Buffer<Row> rows_;              // of the tile
  Buffer<int64_t> dense_rows_;    // indices of the dense rows
  Buffer<int64_t> list_;          // indices of the rows that are worked on
  Buffer<float> sketches_;        // of the listed rows, packed
  Buffer<float> ones_;            // kColumns of them
  int64_t dense_count_ = 0;
};

}  // namespace anoco
