// Scores patches on the device (section 3 of DESIGN.md), in tiles of query rows within a memory
// budget.
//
// For each tile it computes Q R^T by cuBLAS, the anchors, the products of the anchors with the bank
// (rows of the cached Gram matrix if that fits the budget, a second GEMM otherwise), the violators,
// the weighted sums over the neighbors and the energies. Everything is enqueued and nothing waits,
// so the work for a whole picture can be captured into one graph.
#pragma once

#include "gpu/bank.hpp"
#include "gpu/device_allocator.hpp"
#include "gpu/stream.hpp"
#include "scorer/layout.hpp"

namespace anoco::gpu {

constexpr int64_t kDeviceMemory = 256'000'000;

// How the memory budget is divided.
struct TileLayout {
  TileLayout(const BankShape& bank, int64_t max_rows, int64_t memory);

  int64_t workspace;  // bytes that cuBLAS may use
  bool gram;          // the bank's products with itself are kept
  int64_t most_rows;  // of a tile
  int64_t bytes;      // all that falls under the budget

  // Returns the height of tiles of nearly equal height.
  int64_t height(int64_t rows) const;
};

// A cuBLAS handle with its own workspace, which capturing requires, and with exact sums.
class Multiplier {
 public:
  Multiplier(SharedDevice device, int64_t workspace, Operands operands);
  ~Multiplier();
  Multiplier(const Multiplier&) = delete;
  Multiplier& operator=(const Multiplier&) = delete;

  // out = left right^T: rows x refs float32, row-major.
  void multiply(Patches left, int64_t rows, Patches right, int64_t refs, int64_t dim, float* out,
                CUstream stream) const;

 private:
  SharedDevice device_;
  DeviceBuffer<uint8_t> workspace_;
  CublasHandle handle_ = nullptr;
  Operands operands_;
};

class DeviceScorer {
 public:
  // Uses metric, lambda, floor and memory of the settings. Takes all memory.
  DeviceScorer(std::shared_ptr<const DeviceBank> bank, const Settings& settings, int64_t max_rows);
  // Returns the bytes that it takes on the device in addition to the bank.
  static int64_t bytes(const BankShape& bank, const Settings& settings, int64_t max_rows);
  // Returns the part of these for a tile of so many rows, with or without the bank's Gram matrix.
  static int64_t tile_bytes(const BankShape& bank, bool gram, int64_t rows);

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
  int64_t device_bytes() const { return bytes(bank_->shape(), settings_, max_rows_); }

 private:
  // The one list of its memory, see buffer_list.hpp: of the tile, and of all rows.
  template <class Each>
  static void each_tile_buffer(const BankShape& bank, bool gram, int64_t rows, Each&& each);
  template <class Each>
  static void each_row_buffer(int64_t max_rows, Each&& each);
  void compute_gram();
  void score_tile(Patches query, int64_t first, int64_t rows, CUstream stream) const;
  void pull(Patches query, int64_t first, int64_t rows, CUstream stream) const;

  std::shared_ptr<const DeviceBank> bank_;
  Settings settings_;
  int64_t max_rows_;
  TileLayout layout_;
  Multiplier multiplier_;
  // For one tile:
  DeviceBuffer<float> products_, anchor_products_;  // or the Gram matrix
  DeviceBuffer<uint8_t> anchors_;                   // their features, without a Gram matrix
  DeviceBuffer<float> limit_, drift_, moved_;
  // For all rows:
  DeviceBuffer<float> norms_, energy_, best_;
  DeviceBuffer<int> anchor_, neighbors_, bad_;
};

}  // namespace anoco::gpu
