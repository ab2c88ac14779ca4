// Scores patches on the device (section 3 of DESIGN.md), in tiles of query rows within a memory
// budget.
//
// Features of float32 are split into parts first (cuda/parts.cu), unless plain float32 is asked
// for. For each tile it computes Q R^T by cuBLAS and reads it once, for the candidates of each row,
// or it computes the candidates alone (product_path.hpp). From these it finds the anchor and, one
// after the other, the neighbors: whether a reference is one takes a dot product with the anchor,
// or a number of the bank's Gram matrix if that fits the budget. Then it computes the energies.
// Rows with very many neighbors are put on a list, on the device, and finished by products of
// matrices; where Q R^T is not kept, as many at a time as there is memory for. Everything is
// enqueued and nothing waits, so the work for a whole picture can be captured into one graph.
#pragma once

#include <optional>

#include "gpu/bank.hpp"
#include "gpu/cublas.hpp"
#include "gpu/device_allocator.hpp"
#include "gpu/stream.hpp"
#include "scorer/layout.hpp"

namespace anoco::gpu {

// Returns the budget where none is given: a sixteenth of the device's memory. On a device of 8 GB
// that is enough for the Gram matrix of four references of 2304 patches.
int64_t default_memory(const Device& device);

// Returns the size that cuBLAS recommends for its workspace: more on Hopper and on the Blackwell of
// data centers and Thor, less on that of desktops.
int64_t recommended_workspace(int capability);

// How the memory budget is divided.
struct TileLayout {
  TileLayout(const BankShape& bank, int64_t max_rows, int64_t memory);

  int64_t workspace;   // bytes that cuBLAS may use
  bool gram;           // the bank's products with itself are kept
  int64_t most_rows;   // of a tile
  int64_t dense_rows;  // whose products are in memory at the same time
  int64_t bytes;       // all that falls under the budget

  // Returns the height of tiles of nearly equal height.
  int64_t height(int64_t rows) const;
};

// A cuBLAS handle with its own workspace, which capturing requires, and with exact sums.
class Multiplier {
 public:
  Multiplier(SharedDevice device, int64_t workspace, Factors factors);
  ~Multiplier();
  Multiplier(const Multiplier&) = delete;
  Multiplier& operator=(const Multiplier&) = delete;

  // out = left right^T of rows of factors: rows x refs float32, row-major.
  void multiply(const void* left, int64_t rows, const void* right, int64_t refs, int64_t dim,
                float* out, CUstream stream) const;

 private:
  SharedDevice device_;
  DeviceBuffer<uint8_t> workspace_;
  const Cublas* blas_ = nullptr;  // that made the handle
  CublasHandle handle_ = nullptr;
  Factors factors_;
};

class DeviceScorer {
 public:
  // Uses metric, lambda, floor and memory of the settings. Takes all memory.
  DeviceScorer(std::shared_ptr<const DeviceBank> bank, const Settings& settings, int64_t max_rows);
  // Returns the bytes that it takes on the device in addition to the bank and its Gram matrix,
  // which scorers share.
  static int64_t bytes(const BankShape& bank, const Settings& settings, int64_t max_rows);
  // Returns the bytes of its budget for a tile of so many rows, of which so many have products in
  // memory, with or without the Gram matrix.
  static int64_t tile_bytes(const BankShape& bank, bool gram, int64_t rows, int64_t dense_rows);

  // Enqueues the scoring of rows of the bank's type. They must stay where they are until it is
  // done.
  void enqueue(Patches query, int64_t rows, CUstream stream) const;

  // The results on the device: for each row, and the lowest row that could not be scored.
  float* energy() const { return energy_.data(); }
  float* similarity() const { return best_.data(); }
  int* anchor() const { return anchor_.data(); }
  int* neighbors() const { return neighbors_.data(); }
  int* bad() const { return bad_.data(); }

  const DeviceBank& bank() const { return *bank_; }
  int64_t max_rows() const { return max_rows_; }
  // Returns the bytes that it uses in addition to the bank.
  int64_t device_bytes() const {
    return bytes(bank_->shape(), settings_, max_rows_) +
           (layout_.gram ? bank_->shape().gram_bytes() : 0);
  }

 private:
  // The one list of its memory, see buffer_list.hpp: of the tile, and of all rows.
  template <class Each>
  static void each_tile_buffer(const BankShape& bank, int64_t rows, int64_t dense_rows,
                               Each&& each);
  template <class Each>
  static void each_row_buffer(int64_t max_rows, Each&& each);
  // What products are computed from, of query patches and of the bank, and their norms.
  struct FactorRows {
    const void *query, *bank;
    const float *query_norms, *bank_norms;
    int dim;

    const Half* query_halves() const { return static_cast<const Half*>(query); }
    const Half* bank_halves() const { return static_cast<const Half*>(bank); }
  };
  void compute_gram(float* out) const;
  // Splits query patches if that is how they are multiplied.
  FactorRows find_factors(Patches query, const float* norms, int64_t rows, CUstream stream) const;
  // All products of so many rows with the bank.
  void multiply(const FactorRows& factors, int64_t rows, float* out, CUstream stream) const;
  void score_tile(Patches query, int64_t first, int64_t rows, CUstream stream) const;
  void find_candidates(const FactorRows& factors, int64_t rows, CUstream stream) const;
  template <class Number>
  void find_neighbors(const Number* q, const Number* bank, const FactorRows& factors, int64_t first,
                      int64_t rows, CUstream stream) const;
  // A part of the list, from `done` on.
  template <class Number>
  void finish_dense_rows(const Number* q, const Number* bank, const FactorRows& factors,
                         int64_t first, int64_t done, CUstream stream) const;
  bool keeps_products() const {
    return gpu::keeps_products(bank_->shape().path, bank_->shape().factors);
  }

  std::shared_ptr<const DeviceBank> bank_;
  Settings settings_;
  int64_t max_rows_;
  TileLayout layout_;
  std::optional<Multiplier> multiplier_;             // none: the kernels of this library multiply
  std::shared_ptr<const DeviceBuffer<float>> gram_;  // of the bank, if it fits the budget
  // For one tile:
  DeviceBuffer<Half> parts_;  // of its queries
  DeviceBuffer<float> part_norms_;
  DeviceBuffer<float> products_;
  DeviceBuffer<Ranked> candidates_, listed_;
  DeviceBuffer<float> again_;  // products that were computed once more, if they are not kept
  DeviceBuffer<int> dense_rows_, dense_count_;
  // Of each dense row: its first violator, the sum of its weights, and the mean of its references.
  DeviceBuffer<unsigned> limit_;
  DeviceBuffer<double> totals_;
  DeviceBuffer<float> mean_;
  // For all rows:
  DeviceBuffer<float> norms_, energy_, best_;
  DeviceBuffer<int> anchor_, neighbors_, bad_;
};

}  // namespace anoco::gpu
