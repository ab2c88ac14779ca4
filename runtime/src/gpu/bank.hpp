// The reference patches on the device.
#pragma once

#include <memory>
#include <mutex>

#include "anoco_edge.h"
#include "gpu/patches.hpp"
#include "gpu/product_path.hpp"

namespace anoco::gpu {

struct BankShape {
  int64_t rows, dim;
  Factors factors;
  ProductPath path = ProductPath::cublas;
  int capability = 0;  // of its device; 87 is 8.7

  int64_t gram_bytes() const { return rows * rows * int64_t(sizeof(float)); }
};

class DeviceBank {
 public:
  // Copies features of type ANOCO_FLOAT32 or ANOCO_FLOAT16 from the host and converts them to the
  // type of the factors if needed. A row that cannot be scored is a Failure (ANOCO_BAD_FEATURES).
  // All scorers of the bank compute products on the same path, because its Gram matrix has those of
  // one.
  DeviceBank(SharedDevice device, const anoco_bank_options& options, Factors factors,
             ProductPath path);

  int64_t rows() const { return rows_; }
  int64_t dim() const { return dim_; }
  Patches patches() const { return {features_of(factors_), features_.address()}; }
  const float* norms() const { return norms_.data(); }
  // Of features of float32, if these are multiplied as parts.
  const Half* parts() const { return parts_.data(); }
  const float* part_norms() const { return part_norms_.data(); }
  BankShape shape() const { return {rows_, dim_, factors_, path_, device_->capability()}; }
  const SharedDevice& device() const { return device_; }

  // Returns the products of the references with each other, rows x rows, which all scorers of the
  // bank share. The first that asks computes them with compute(where to).
  template <class Compute>
  std::shared_ptr<const DeviceBuffer<float>> gram(Compute&& compute) const {
    const std::lock_guard<std::mutex> lock(computing_);
    if (auto known = gram_.lock()) return known;
    const auto made = std::make_shared<const DeviceBuffer<float>>(device_, rows_ * rows_);
    compute(made->data());
    gram_ = made;
    return made;
  }

 private:
  void load(const anoco_bank_options& options);
  void check(const anoco_bank_options& options);
  void split_rows();

  SharedDevice device_;
  int64_t rows_, dim_;
  Factors factors_;
  ProductPath path_;
  DeviceBuffer<uint8_t> features_;
  DeviceBuffer<float> norms_;
  DeviceBuffer<Half> parts_;
  DeviceBuffer<float> part_norms_;
  mutable std::mutex computing_;
  mutable std::weak_ptr<const DeviceBuffer<float>> gram_;
};

}  // namespace anoco::gpu
