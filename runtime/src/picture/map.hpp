// From the grid of energies to the anomaly map: bilinear, then Gaussian 7x7, as anoco_edge/pipeline/anomaly_map.py.
#pragma once

#include <cstdint>

#include "buffer.hpp"
#include "bundle/schema.hpp"

namespace anoco {

class MapMaker {
 public:
  MapMaker(int64_t rows, int64_t cols, int64_t stride);
  static int64_t bytes(int64_t rows, int64_t cols, int64_t stride);

  // rows * stride x cols * stride floats; zero on patches that do not count. NULL: all count.
  void make(const float* energy, const uint8_t* counted, float* out);

  // Interpolation and smoothing along one axis: a pixel is made of `reach` patches from `first` on.
  struct Axis {
    Axis(int64_t patches, int64_t stride);
    int64_t patches, pixels, reach;
    Buffer<float> weights;
    Buffer<int32_t> first;
  };
  const Axis& down_axis() const { return down_; }
  const Axis& across_axis() const { return across_; }

 private:
  void across(const float* grid, const uint8_t* counted, Buffer<float>& out) const;
  void down(const Buffer<float>& rows, int64_t y, float* out) const;
  void divide(const uint8_t* counted, float* out) const;

  int64_t stride_;
  Axis down_, across_;
  Buffer<float> energy_, counted_;  // rows x width: what `across` gives
  Buffer<float> weight_;            // of one row of pixels
};

}  // namespace anoco
