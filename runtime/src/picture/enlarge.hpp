// Resizes floats as Pillow's bilinear filter does, to bring maps to the size of the picture.
#pragma once

#include "buffer_list.hpp"
#include "picture/placement.hpp"
#include "picture/resample_weights.hpp"

namespace anoco {

class Enlarger {
 public:
  Enlarger() = default;
  // Takes memory for maps of up to width x height and pictures of up to max_width x max_height.
  Enlarger(int64_t width, int64_t height, int64_t max_width, int64_t max_height);
  static int64_t bytes(int64_t width, int64_t height, int64_t max_width, int64_t max_height);

  // Enlarges the part of a map that shows the picture; its rows have `stride` floats.
  void enlarge(const float* map, int64_t stride, const Placement& placement, float* out);

 private:
  // Rows of the map that are kept, enough for one row of the result if the picture is not smaller
  // than the map. A smaller picture needs more and computes some of them twice.
  static constexpr int64_t kKept = 3;

  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(int64_t width, int64_t height, int64_t max_width, int64_t max_height,
                          Each&& each);
  const float* across(const float* map, int64_t stride, const Placement& placement, int64_t y);

  ResampleWeights<double> across_, down_;
  Buffer<float> rows_;
  int64_t kept_[kKept] = {};  // the row of the map that each holds, or -1
  Buffer<double> sums_;
};

}  // namespace anoco
