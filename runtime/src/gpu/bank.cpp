#include "gpu/bank.hpp"

#include <algorithm>
#include <cstring>

#include "gpu/stream.hpp"

namespace anoco::gpu {
namespace {

constexpr int64_t kStaging = 4'000'000;  // bytes that go to the device at a time

const uint8_t* host_row(const anoco_bank_options& options, int64_t row) {
  return static_cast<const uint8_t*>(options.features) +
         row * options.dim * bytes_of(operands_of(options.type));
}

}  // namespace

DeviceBank::DeviceBank(SharedDevice device, const anoco_bank_options& options, Factors factors,
                       ProductPath path)
    : device_(std::move(device)),
      rows_(options.rows),
      dim_(options.dim),
      factors_(factors),
      path_(path),
      features_(device_, rows_ * dim_ * bytes_of(features_of(factors))),
      norms_(device_, rows_),
      parts_(device_, rows_ * parts_dim(factors, dim_)),
      part_norms_(device_, factors == Factors::parts ? rows_ : 0) {
  const CurrentDevice current(*device_);
  load(options);
  check(options);
  if (factors == Factors::parts) split_rows();
}

void DeviceBank::load(const anoco_bank_options& options) {
  const Operands given = operands_of(options.type), kept = features_of(factors_);
  const int64_t row_bytes = dim_ * bytes_of(given);
  const int64_t together = std::clamp<int64_t>(kStaging / row_bytes, 1, rows_);
  PinnedBuffer<uint8_t> staging(device_, together * row_bytes);
  DeviceBuffer<uint8_t> raw(device_, given == kept ? 0 : together * row_bytes);
  const Stream stream(device_);
  for (int64_t row = 0; row < rows_; row += together) {
    const int64_t count = std::min(together, rows_ - row);
    const Patches target = patches().from(row, dim_);
    std::memcpy(staging.data(), host_row(options, row), size_t(count * row_bytes));
    const CUdeviceptr to = given == kept ? target.address : raw.address();
    driver().cuMemcpyHtoDAsync_v2(to, staging.data(), size_t(count * row_bytes), stream.get());
    if (given != kept)
      convert(*device_, {given, raw.address()}, count * dim_, target, stream.get());
    stream.wait();
  }
}

void DeviceBank::check(const anoco_bank_options& options) {
  DeviceBuffer<int> bad(device_, 1);
  PinnedBuffer<int> found(device_, 1);
  const Stream stream(device_);
  compute_norms(*device_, patches(), rows_, dim_, norms_.data(), bad.data(), stream.get());
  download(bad.data(), found, 1, stream.get());
  stream.wait();
  if (found[0] == ANOCO_GPU_NO_BAD_ROW) return;
  refuse_row("reference patch " + std::to_string(found[0]), host_row(options, found[0]),
             operands_of(options.type), dim_);
}

void DeviceBank::split_rows() {
  const Stream stream(device_);
  split(*device_, patches(), norms_.data(), rows_, dim_, true, parts_.data(), part_norms_.data(),
        stream.get());
  stream.wait();
}

}  // namespace anoco::gpu
