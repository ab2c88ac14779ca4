// The reference patches on the device.
#pragma once

#include "anoco_edge.h"
#include "gpu/patches.hpp"

namespace anoco::gpu {

struct BankShape {
  int64_t rows, dim;
  Operands operands;
};

class DeviceBank {
 public:
  // Copies features of type ANOCO_FLOAT32 or ANOCO_FLOAT16 from the host and converts them if
  // needed. A row that cannot be scored is a Failure (ANOCO_BAD_FEATURES).
  DeviceBank(SharedDevice device, const anoco_bank_options& options, Operands operands);

  int64_t rows() const { return rows_; }
  int64_t dim() const { return dim_; }
  Patches patches() const { return {operands_, features_.address()}; }
  const float* norms() const { return norms_.data(); }
  BankShape shape() const { return {rows_, dim_, operands_}; }
  const SharedDevice& device() const { return device_; }

 private:
  void load(const anoco_bank_options& options);
  void check(const anoco_bank_options& options);

  SharedDevice device_;
  int64_t rows_, dim_;
  Operands operands_;
  DeviceBuffer<uint8_t> features_;
  DeviceBuffer<float> norms_;
};

}  // namespace anoco::gpu
