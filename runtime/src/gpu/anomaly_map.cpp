#include "gpu/anomaly_map.hpp"

#include <algorithm>

#include "gpu/stream.hpp"
#include "picture/anomaly_map.hpp"
#include "picture/pooling.hpp"

namespace anoco::gpu {
namespace {

template <class T>
void copy_to(const SharedDevice& device, const DeviceBuffer<T>& to, const T* numbers) {
  if (to.size() == 0) return;
  PinnedBuffer<T> staging(device, to.size());
  std::copy_n(numbers, to.size(), staging.data());
  const CurrentDevice current(*device);
  const Stream stream(device);
  upload(staging, to, to.size(), stream.get());
  stream.wait();
}

}  // namespace

DeviceAnomalyMap::Axis::Axis(const SharedDevice& device, int64_t patches, int64_t stride) {
  const AnomalyMapBuilder::Axis host(patches, stride);
  first = DeviceBuffer<int>(device, host.first.size());
  weights = DeviceBuffer<float>(device, host.weights.size());
  reach = int(host.reach);
  copy_to(device, first, host.first.data());
  copy_to(device, weights, host.weights.data());
}

int64_t DeviceAnomalyMap::Axis::bytes(int64_t patches, int64_t stride) {
  return AnomalyMapBuilder::Axis::bytes(patches, stride);
}

template <class Each>
void DeviceAnomalyMap::each_buffer(const InputContract& input, const std::vector<float>& baseline,
                                   Pooling pooling, Each&& each) {
  const int64_t smoothed = pooling == Pooling::smooth ? input.patches() : 0;
  const int64_t pixels = input.width * input.height;
  each.part(&DeviceAnomalyMap::across_, input.cols, input.stride);
  each.part(&DeviceAnomalyMap::down_, input.rows, input.stride);
  each(&DeviceAnomalyMap::baseline_, int64_t(baseline.size()));
  each(&DeviceAnomalyMap::rows_energy_, input.rows * input.width);
  each(&DeviceAnomalyMap::rows_weight_, input.rows * input.width);
  each(&DeviceAnomalyMap::map_, pixels);
  each(&DeviceAnomalyMap::smoothed_, smoothed);
  each(&DeviceAnomalyMap::host_smoothed_, smoothed);
  each(&DeviceAnomalyMap::score_, 1);
  each(&DeviceAnomalyMap::peak_, 1);
  each(&DeviceAnomalyMap::grid_, input.patches());
  each(&DeviceAnomalyMap::host_map_, pixels);
  each(&DeviceAnomalyMap::host_score_, 1);
  each(&DeviceAnomalyMap::host_peak_, 1);
}

DeviceAnomalyMap::DeviceAnomalyMap(const SharedDevice& device, const InputContract& input,
                                   const std::vector<float>& baseline, Pooling pooling)
    : device_(device), input_(input), top_(pooling == Pooling::top5 ? ANOCO_GPU_LARGEST : 1) {
  each_buffer(input, baseline, pooling, DeviceAllocator{*this, device_});
  copy_to(device, baseline_, baseline.data());
}

int64_t DeviceAnomalyMap::bytes(const InputContract& input, const std::vector<float>& baseline,
                                Pooling pooling) {
  return count_bytes([&](auto& each) { each_buffer(input, baseline, pooling, each); });
}

void DeviceAnomalyMap::enqueue(float* grid, const Selection& selection, CUstream stream) {
  const Kernels& k = device_->kernels();
  const int patches = int(input_.patches());
  const uint8_t* scored = selection.all() ? nullptr : selection.scored();
  if (baseline_.size() > 0)
    k.subtract_baseline(each_number(patches), stream, grid, selection.scored(), baseline_.data(),
                        patches);
  k.pool(each_row(1), stream, grid, selection.scored(), patches, top_, score_.data(), peak_.data());
  if (smoothed_.size() > 0) {
    k.smooth(each_number(patches), stream, grid, selection.scored(), int(input_.rows),
             int(input_.cols), kSmoothSide, smoothed_.data());
    k.pool(each_row(1), stream, smoothed_.data(), selection.scored(), patches, top_, score_.data(),
           nullptr);
    download(smoothed_.data(), host_smoothed_, patches, stream);
  }
  across(grid, scored, rows_energy_.data(), stream);
  if (scored != nullptr) across(nullptr, scored, rows_weight_.data(), stream);
  k.map_down(each_pixel(input_.width, input_.height), stream, rows_energy_.data(),
             scored != nullptr ? rows_weight_.data() : nullptr, scored, down_.first.data(),
             down_.weights.data(), down_.reach, int(input_.cols), int(input_.width),
             int(input_.height), int(input_.stride), map_.data());
  download(grid, grid_, patches, stream);
  download(score_.data(), host_score_, 1, stream);
  download(peak_.data(), host_peak_, 1, stream);
  download(map_.data(), host_map_, map_.size(), stream);
}

void DeviceAnomalyMap::across(const float* grid, const uint8_t* scored, float* out,
                              CUstream stream) const {
  device_->kernels().map_across(each_pixel(input_.width, input_.rows), stream, grid, scored,
                                across_.first.data(), across_.weights.data(), across_.reach,
                                int(input_.rows), int(input_.cols), int(input_.width), out);
}

}  // namespace anoco::gpu
