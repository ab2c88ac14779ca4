// Samples a pixel of a view as Pillow's AFFINE transform with its BILINEAR filter does: between the
// centers of four pixels, with the edge repeated within half a pixel of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "bundle/schema.hpp"

namespace anoco {

struct Sample {
  bool outside = true;
  int64_t x0 = 0, x1 = 0, y0 = 0, y1 = 0;
  double across = 0, down = 0;  // shares of x1 and y1

  // Interpolates in the order of Pillow's roundings; `at(x, y)` returns a value of the source.
  template <class At>
  double between(At&& at) const {
    const auto along = [&](int64_t y) {
      const auto left = at(x0, y), right = at(x1, y);
      return left + (right - left) * across;
    };
    const double upper = along(y0);
    return upper + (along(y1) - upper) * down;
  }
};

inline Sample sample_at(const Affine& view, int64_t x, int64_t y, int64_t width, int64_t height) {
  const double px = double(x) + 0.5, py = double(y) + 0.5;
  double sx = view[0] * px + view[1] * py + view[2], sy = view[3] * px + view[4] * py + view[5];
  Sample sample;
  sample.outside = !(sx >= 0 && sx < double(width) && sy >= 0 && sy < double(height));
  if (sample.outside) return sample;
  sx -= 0.5;
  sy -= 0.5;
  const int64_t left = int64_t(std::floor(sx)), top = int64_t(std::floor(sy));
  sample.across = sx - double(left);
  sample.down = sy - double(top);
  sample.x0 = std::max<int64_t>(left, 0);
  sample.x1 = std::min(left + 1, width - 1);
  sample.y0 = std::max<int64_t>(top, 0);
  sample.y1 = std::min(top + 1, height - 1);
  return sample;
}

}  // namespace anoco
