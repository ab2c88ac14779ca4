#include "gpu/anomaly_map.hpp"

#include <algorithm>

#include "gpu/stream.hpp"
#include "picture/anomaly_map.hpp"

namespace anoco::gpu {
namespace {

template <class T>
void copy_to(const SharedDevice& device, const DeviceBuffer<T>& to, const T* numbers) {
  if (to.size() == 0) return;
  PinnedBuffer<T> staging(device, to.size());
  std::copy_n(numbers, to.size(), staging.data());
  const Current current(*device);
  const Stream stream(device);
  upload(staging, to, to.size(), stream.get());
  stream.wait();
}

}  // namespace

DeviceMap::Axis::Axis(const SharedDevice& device, int64_t patches, int64_t stride) {
  const MapMaker::Axis host(patches, stride);
  first = DeviceBuffer<int>(device, host.first.size());
  weights = DeviceBuffer<float>(device, host.weights.size());
  reach = int(host.reach);
  copy_to(device, first, host.first.data());
  copy_to(device, weights, host.weights.data());
}

int64_t DeviceMap::Axis::bytes(int64_t patches, int64_t stride) {
  return MapMaker::Axis::bytes(patches, stride);
}

template <class Each>
void DeviceMap::each_buffer(const InputContract& canvas, const std::vector<float>& usual,
                            Each&& each) {
  const int64_t pixels = canvas.width * canvas.height;
  each.part(&DeviceMap::across_, canvas.cols, canvas.stride);
  each.part(&DeviceMap::down_, canvas.rows, canvas.stride);
  each(&DeviceMap::usual_, int64_t(usual.size()));
  each(&DeviceMap::rows_energy_, canvas.rows * canvas.width);
  each(&DeviceMap::rows_weight_, canvas.rows * canvas.width);
  each(&DeviceMap::map_, pixels);
  each(&DeviceMap::score_, 1);
  each(&DeviceMap::peak_, 1);
  each(&DeviceMap::grid_, canvas.patches());
  each(&DeviceMap::map_here_, pixels);
  each(&DeviceMap::score_here_, 1);
  each(&DeviceMap::peak_here_, 1);
}

DeviceMap::DeviceMap(const SharedDevice& device, const InputContract& canvas,
                     const std::vector<float>& usual, Pooling pooling)
    : device_(device), canvas_(canvas), top_(pooling == Pooling::max ? 1 : ANOCO_GPU_LARGEST) {
  each_buffer(canvas, usual, DeviceAllocator{*this, device_});
  copy_to(device, usual_, usual.data());
}

int64_t DeviceMap::bytes(const InputContract& canvas, const std::vector<float>& usual, Pooling) {
  return count_bytes([&](auto& each) { each_buffer(canvas, usual, each); });
}

void DeviceMap::enqueue(float* grid, const Selection& selection, CUstream stream) {
  const Kernels& k = device_->kernels();
  const int patches = int(canvas_.patches());
  const uint8_t* counted = selection.all() ? nullptr : selection.counted();
  if (usual_.size() > 0)
    k.take_off(each_number(patches), stream, grid, selection.counted(), usual_.data(), patches);
  k.pool(each_row(1), stream, grid, selection.counted(), patches, top_, score_.data(),
         peak_.data());
  across(grid, counted, rows_energy_.data(), stream);
  if (counted != nullptr) across(nullptr, counted, rows_weight_.data(), stream);
  k.map_down(each_pixel(canvas_.width, canvas_.height), stream, rows_energy_.data(),
             counted != nullptr ? rows_weight_.data() : nullptr, counted, down_.first.data(),
             down_.weights.data(), down_.reach, int(canvas_.cols), int(canvas_.width),
             int(canvas_.height), int(canvas_.stride), map_.data());
  download(grid, grid_, patches, stream);
  download(score_.data(), score_here_, 1, stream);
  download(peak_.data(), peak_here_, 1, stream);
  download(map_.data(), map_here_, map_.size(), stream);
}

void DeviceMap::across(const float* grid, const uint8_t* counted, float* out,
                       CUstream stream) const {
  device_->kernels().map_across(each_pixel(canvas_.width, canvas_.rows), stream, grid, counted,
                                across_.first.data(), across_.weights.data(), across_.reach,
                                int(canvas_.rows), int(canvas_.cols), int(canvas_.width), out);
}

}  // namespace anoco::gpu
