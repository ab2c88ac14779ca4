// Computes score and anomaly map from the grid of energies, on the device.
#pragma once

#include "bundle/schema.hpp"
#include "gpu/device_allocator.hpp"
#include "gpu/selection.hpp"

namespace anoco::gpu {

class DeviceAnomalyMap {
 public:
  DeviceAnomalyMap() = default;
  // `baseline` is subtracted from each patch's energy, if it is not empty. Takes all memory.
  DeviceAnomalyMap(const SharedDevice& device, const InputContract& input,
                   const std::vector<float>& baseline, Pooling pooling);
  static int64_t bytes(const InputContract& input, const std::vector<float>& baseline,
                       Pooling pooling);

  // Enqueues the computation and the copies of its results to the host: grid, score, peak and map,
  // with pooling `smooth` the smoothed grid too.
  void enqueue(float* grid, const Selection& selection, CUstream stream);

  // The results on the host, valid after the stream was waited for:
  PinnedBuffer<float>& grid() { return grid_; }
  // What is compared with the threshold: the grid, or the smoothed one.
  const float* compared() const {
    return smoothed_.size() > 0 ? host_smoothed_.data() : grid_.data();
  }
  const float* map() const { return host_map_.data(); }
  double score() const { return host_score_[0]; }
  int64_t peak() const { return host_peak_[0]; }

 private:
  // The tables of AnomalyMapBuilder, copied to the device.
  struct Axis {
    Axis() = default;
    Axis(const SharedDevice& device, int64_t patches, int64_t stride);
    static int64_t bytes(int64_t patches, int64_t stride);

    DeviceBuffer<int> first;
    DeviceBuffer<float> weights;
    int reach = 0;
  };
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(const InputContract& input, const std::vector<float>& baseline,
                          Pooling pooling, Each&& each);
  void across(const float* grid, const uint8_t* scored, float* out, CUstream stream) const;

  SharedDevice device_;
  InputContract input_;
  int top_ = 1;  // number of energies that are averaged into the score
  Axis across_, down_;
  DeviceBuffer<float> baseline_, rows_energy_, rows_weight_, map_, score_;
  DeviceBuffer<float> smoothed_;  // with pooling `smooth` only, as host_smoothed_
  DeviceBuffer<int> peak_;
  PinnedBuffer<float> grid_, host_smoothed_, host_map_, host_score_;
  PinnedBuffer<int> host_peak_;
};

}  // namespace anoco::gpu
