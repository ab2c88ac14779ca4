#include "gpu/map.hpp"

#include <algorithm>

#include "gpu/stream.hpp"
#include "picture/map.hpp"

namespace anoco::gpu {
namespace {

template <class T>
DeviceBuffer<T> copied(const SharedDevice& device, const T* numbers, int64_t count) {
  DeviceBuffer<T> there(device, count);
  if (count == 0) return there;
  PinnedBuffer<T> here(device, count);
  std::copy_n(numbers, count, here.data());
  const Current current(*device);
  const Stream stream(device);
  upload(here, there, count, stream.get());
  stream.wait();
  return there;
}

}  // namespace

DeviceMap::DeviceMap(const SharedDevice& device, const InputContract& canvas,
                     const std::vector<float>& usual, Pooling pooling)
    : device_(device),
      canvas_(canvas),
      top_(pooling == Pooling::max ? 1 : ANOCO_GPU_LARGEST),
      usual_(copied(device, usual.data(), int64_t(usual.size()))),
      rows_energy_(device, canvas.rows * canvas.width),
      rows_weight_(device, canvas.rows * canvas.width),
      map_(device, canvas.width * canvas.height),
      score_(device, 1),
      peak_(device, 1),
      grid_(device, canvas.patches()),
      map_here_(device, map_.size()),
      score_here_(device, 1),
      peak_here_(device, 1) {
  const MapMaker tables(canvas.rows, canvas.cols, canvas.stride);
  const auto axis = [&](const MapMaker::Axis& from) {
    return Axis{copied(device, from.first.data(), from.first.size()),
                copied(device, from.weights.data(), from.weights.size()), int(from.reach)};
  };
  across_ = axis(tables.across_axis());
  down_ = axis(tables.down_axis());
}

int64_t DeviceMap::bytes(const InputContract& canvas) {
  const int64_t pixels = canvas.width * canvas.height;
  return 8 * pixels + 8 * canvas.rows * canvas.width + 8 * canvas.patches() +
         MapMaker::bytes(canvas.rows, canvas.cols, canvas.stride);
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
