// Builds the anomaly map from the grid of energies: bilinear interpolation, then a Gaussian of 7x7,
// as anoco_edge/pipeline/anomaly_map.py does.
#pragma once

#include <cstdint>

#include "buffer_list.hpp"
#include "bundle/schema.hpp"

namespace anoco {

class AnomalyMapBuilder {
 public:
  AnomalyMapBuilder() = default;
  AnomalyMapBuilder(int64_t rows, int64_t cols, int64_t stride);
  static int64_t bytes(int64_t rows, int64_t cols, int64_t stride);

  // Writes rows * stride x cols * stride floats, zero on patches that are not scored. If `scored`
  // is NULL all patches are.
  void make(const float* energy, const uint8_t* scored, float* out);

  // Interpolation and smoothing along one axis: a pixel is the weighted sum of `reach` patches from
  // `first` on.
  struct Axis {
    Axis() = default;
    Axis(int64_t patches, int64_t stride);
    static int64_t bytes(int64_t patches, int64_t stride);

    int64_t patches = 0, pixels = 0, reach = 0;
    Buffer<float> weights;
    Buffer<int32_t> first;

   private:
    template <class Each>
    static void each_buffer(int64_t patches, int64_t stride, Each&& each);
  };
  const Axis& down_axis() const { return down_; }
  const Axis& across_axis() const { return across_; }

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(int64_t rows, int64_t cols, int64_t stride, Each&& each);
  void across(const float* grid, const uint8_t* scored, Buffer<float>& out) const;
  void down(const Buffer<float>& rows, int64_t y, float* out) const;
  void divide(const uint8_t* scored, float* out) const;

  int64_t stride_ = 0;
  Axis down_, across_;
  Buffer<float> energy_, scored_;  // rows x width, written by `across`
  Buffer<float> weight_;           // for one row of pixels
};

}  // namespace anoco
