#include "gpu/preparer.hpp"

#include <algorithm>
#include <cstring>

#include "picture/formats.hpp"
#include "picture/resize.hpp"

namespace anoco::gpu {
namespace {

// The format that kernels take says how to convert NV12 as well.
int kernel_format(const anoco_image& image) {
  return int(image.format) + (image.matrix == ANOCO_BT709 ? ANOCO_GPU_BT709 : 0) +
         (image.range == ANOCO_FULL_RANGE ? ANOCO_GPU_FULL_RANGE : 0);
}

int64_t bytes_of_row(const anoco_image& image) {
  return image.width * (image.format == ANOCO_NV12 ? 1 : row_layout(image.format).step);
}

void pack_rows(const void* from, int64_t stride, int64_t rows, int64_t bytes, uint8_t* out) {
  for (int64_t y = 0; y < rows; ++y)
    std::memcpy(out + y * bytes, static_cast<const uint8_t*>(from) + y * stride, size_t(bytes));
}

}  // namespace

template <class Each>
void DevicePreparer::Table::each_buffer(int64_t inputs, int64_t outputs, Each&& each) {
  const int64_t numbers = outputs + ResampleWeights<int32_t>::most_weights(inputs, outputs);
  each.part(&Table::resample_, inputs, outputs);
  each(&Table::host_numbers_, numbers);
  each(&Table::device_numbers_, numbers);
}

DevicePreparer::Table::Table(const SharedDevice& device, int64_t inputs, int64_t outputs) {
  each_buffer(inputs, outputs, DeviceAllocator{*this, device});
}

int64_t DevicePreparer::Table::bytes(int64_t inputs, int64_t outputs) {
  return count_bytes([&](auto& each) { each_buffer(inputs, outputs, each); });
}

void DevicePreparer::Table::set(int64_t inputs, int64_t outputs, CUstream stream) {
  if (inputs == inputs_ && outputs == outputs_) return;
  inputs_ = outputs_ = 0;  // until the copy is enqueued
  resample_.set(inputs, outputs);
  const int64_t weights = outputs * resample_.reach();
  std::copy_n(resample_.firsts(), outputs, host_numbers_.data());
  std::copy_n(resample_.weights(0), weights, host_numbers_.data() + outputs);
  upload(host_numbers_, device_numbers_, outputs + weights, stream);
  inputs_ = inputs;
  outputs_ = outputs;
}

template <class Each>
void DevicePreparer::each_buffer(const InputContract& contract, int64_t max_width,
                                 int64_t max_height, Each&& each) {
  using Self = DevicePreparer;
  each.part(&Self::across_, max_width, contract.width);
  each.part(&Self::down_, max_height, contract.height);
  each(&Self::host_picture_, 4 * max_width * max_height);
  each(&Self::device_picture_, 4 * max_width * max_height);
  each(&Self::between_, 3 * std::max(contract.width * max_height, max_width * contract.height));
}

DevicePreparer::DevicePreparer(SharedDevice device, const InputContract& contract,
                               int64_t max_width, int64_t max_height)
    : device_(std::move(device)), contract_(contract) {
  each_buffer(contract, max_width, max_height, DeviceAllocator{*this, device_});
}

int64_t DevicePreparer::bytes(const InputContract& contract, int64_t max_width,
                              int64_t max_height) {
  return count_bytes([&](auto& each) { each_buffer(contract, max_width, max_height, each); });
}

Placement DevicePreparer::prepare(const anoco_image& image, uint8_t* out, CUstream stream) {
  const Placement p = place(contract_, image.width, image.height);
  across_.set(image.width, p.width, stream);
  down_.set(image.height, p.height, stream);
  resize(fetch(image, stream), image, p, out, stream);
  if (p.width == contract_.width && p.height == contract_.height) return p;
  device_->kernels().fill(each_pixel(contract_.width, contract_.height), stream, out,
                          int(contract_.width), int(contract_.height), int(p.left), int(p.top),
                          int(p.width), int(p.height), contract_.fill[0], contract_.fill[1],
                          contract_.fill[2]);
  return p;
}

DevicePreparer::Source DevicePreparer::fetch(const anoco_image& image, CUstream stream) {
  const bool chroma = image.format == ANOCO_NV12;
  if (image.memory == ANOCO_DEVICE) {
    const auto pixels = [&](const void* given, const char* name) {
      return reinterpret_cast<const uint8_t*>(reachable(*device_, given, name));
    };
    return {pixels(image.data, "the picture's data"),
            chroma ? pixels(image.chroma, "the picture's chroma") : nullptr, kernel_format(image),
            image.stride, image.chroma_stride};
  }
  const int64_t row = bytes_of_row(image), luma = row * image.height;
  pack_rows(image.data, image.stride, image.height, row, host_picture_.data());
  if (chroma)
    pack_rows(image.chroma, image.chroma_stride, image.height / 2, row,
              host_picture_.data() + luma);
  upload(host_picture_, device_picture_, chroma ? luma + luma / 2 : luma, stream);
  return {device_picture_.data(), device_picture_.data() + luma, kernel_format(image), row, row};
}

void DevicePreparer::resize(const Source& from, const anoco_image& image, const Placement& to,
                            uint8_t* out, CUstream stream) {
  const bool down_first = Resizer::goes_down_first(image, to.width, to.height);
  const int64_t width = down_first ? image.width : to.width;
  const int64_t height = down_first ? to.height : image.height;
  const int channels = int(row_layout(image.format).channels);
  const Source between{between_.data(), nullptr, channels == 1 ? ANOCO_GREY : ANOCO_RGB,
                       channels * width, 0};
  const auto pass = [&](bool down, const Source& source, int64_t wide, int64_t high, int made,
                        uint8_t* target, int64_t stride) {
    const Table& table = down ? down_ : across_;
    const Kernels::Resize& kernel =
        down ? device_->kernels().resize_down : device_->kernels().resize_across;
    kernel(each_pixel(wide, high), stream, source.data, source.chroma, source.format, source.stride,
           source.chroma_stride, int(wide), int(high), table.first(), table.weights(),
           table.reach(), made, target, stride);
  };
  const int64_t line = 3 * contract_.width;
  pass(down_first, from, width, height, channels, between_.data(), between.stride);
  pass(!down_first, between, to.width, to.height, 3, out + to.top * line + 3 * to.left, line);
}

}  // namespace anoco::gpu
