// The implementation of anoco_cuda_scorer: one bank, one stream, and a graph for each number of
// rows that was scored.
#pragma once

#include <list>
#include <mutex>
#include <optional>

#include "anoco_cuda.h"
#include "gpu/graph_maker.hpp"
#include "gpu/scorer.hpp"
#include "scorer/scorer.hpp"

namespace anoco::gpu {

class PatchScorer {
 public:
  PatchScorer(std::shared_ptr<const DeviceBank> bank, const Settings& settings, int64_t max_rows);

  // Throws a Failure; nothing is written then, unless its status is ANOCO_CORRUPT.
  void score(const void* query, Operands type, int64_t rows, const Outputs& out);
  void score_device(const anoco_device_patches& query, const anoco_patch_scores& out);
  uint64_t device_bytes();  // in addition to the bank
  GraphCounts graphs();

 private:
  // Everything whose size depends on the number of rows. It is replaced as a whole when there are
  // more rows.
  struct Buffers {
    Buffers(const std::shared_ptr<const DeviceBank>& bank, const Settings& settings,
            int64_t max_rows);

    DeviceScorer scorer;
    DeviceBuffer<uint8_t> raw;    // the caller's patches, if they have the other type
    DeviceBuffer<uint8_t> query;  // the patches with the type of the bank
    DeviceBuffer<int> chosen;
    PinnedBuffer<uint8_t> host_query;
    PinnedBuffer<int> host_chosen;
    PinnedBuffer<float> energy, similarity;
    PinnedBuffer<int> anchor, neighbors, bad;
  };
  // Where the query of a graph comes from: page-locked memory of either type, or the device.
  enum class Source { host_float32, host_float16, device };
  struct CachedWork {
    int64_t rows;
    Source source;
    RepeatedWork work;
  };

  void reserve(int64_t rows);
  void run(int64_t rows, Source source);
  RepeatedWork& find(int64_t rows, Source source);
  void enqueue(int64_t rows, Source source);
  // Returns the outputs with the addresses that the device uses.
  anoco_patch_scores on_device(const anoco_patch_scores& given) const;
  void fetch(const anoco_device_patches& query, Patches from, int64_t rows);
  void wait_for(CUstream stream);
  int64_t bad_row() const;                  // -1: none
  void read_row(Patches all, int64_t row);  // to host_query
  template <class Out>
  void copy_to_host(const Out& out, int64_t rows) const;
  void copy_to_device(const anoco_patch_scores& out, int64_t rows) const;
  Patches operands() const { return {bank_->patches().type, buffers_->query.address()}; }

  std::mutex one_at_a_time_;
  std::shared_ptr<const DeviceBank> bank_;
  Settings settings_;
  std::optional<Buffers> buffers_;
  GraphCounts graph_counts_;
  GraphMaker graph_maker_;
  std::list<CachedWork> work_;  // the last used first
  Event ready_;                 // the caller's patches are ready
  Stream stream_;
};

}  // namespace anoco::gpu
