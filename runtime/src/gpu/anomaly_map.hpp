// From the grid of energies to score and map on the device: what follows the scorer.
#pragma once

#include "bundle/schema.hpp"
#include "gpu/device_allocator.hpp"
#include "gpu/selection.hpp"

namespace anoco::gpu {

class DeviceMap {
 public:
  DeviceMap() = default;
  // `usual` is what is taken off each patch's energy, or empty. Memory is taken here.
  DeviceMap(const SharedDevice& device, const InputContract& canvas,
            const std::vector<float>& usual, Pooling pooling);
  static int64_t bytes(const InputContract& canvas, const std::vector<float>& usual,
                       Pooling pooling);

  // Enqueues it, with the way back of what it finds: grid, score, peak, map.
  void enqueue(float* grid, const Selection& selection, CUstream stream);

  // On the host, when that is done:
  PinnedBuffer<float>& grid() { return grid_; }
  const float* map() const { return map_here_.data(); }
  double score() const { return score_here_[0]; }
  int64_t peak() const { return peak_here_[0]; }

 private:
  // MapMaker's tables, copied to the device.
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
  static void each_buffer(const InputContract& canvas, const std::vector<float>& usual,
                          Each&& each);
  void across(const float* grid, const uint8_t* counted, float* out, CUstream stream) const;

  SharedDevice device_;
  InputContract canvas_;
  int top_ = 1;  // energies that make the score
  Axis across_, down_;
  DeviceBuffer<float> usual_, rows_energy_, rows_weight_, map_, score_;
  DeviceBuffer<int> peak_;
  PinnedBuffer<float> grid_, map_here_, score_here_;
  PinnedBuffer<int> peak_here_;
};

}  // namespace anoco::gpu
