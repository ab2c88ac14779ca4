// Resizes as Pillow's 8-bit antialiased bilinear filter does, bit for bit. It streams: only a few
// rows are kept between the two passes, never the picture.
#pragma once

#include <cstdint>

#include "anoco_edge.h"
#include "buffer_list.hpp"
#include "picture/formats.hpp"
#include "picture/resample_weights.hpp"

namespace anoco {

class Resizer {
 public:
  Resizer() = default;
  // Takes memory for pictures of up to max_width x max_height that become up to width x height, if
  // at most `window` rows of the picture contribute to one row of the result.
  Resizer(int64_t max_width, int64_t max_height, int64_t width, int64_t height, int64_t window);
  static int64_t bytes(int64_t max_width, int64_t max_height, int64_t width, int64_t height,
                       int64_t window);

  // Tells whether the vertical pass comes first. Pillow 13 chooses that if it is less work, and the
  // last bit depends on the order.
  static bool goes_down_first(const anoco_image& image, int64_t width, int64_t height);

  // Writes RGB with `stride` bytes from row to row of `out`.
  void resize(const anoco_image& image, int64_t width, int64_t height, uint8_t* out,
              int64_t stride);

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(int64_t max_width, int64_t max_height, int64_t width, int64_t height,
                          int64_t window, Each&& each);
  void across_first(const anoco_image& image, uint8_t* out, int64_t stride);
  void down_first(const anoco_image& image, uint8_t* out, int64_t stride);
  void across(const anoco_image& image, const uint8_t* row, uint8_t* out) const;
  void add(const uint8_t* row, int64_t count, int32_t weight);
  void finish(int64_t count, uint8_t* out);

  int64_t window_ = 0;
  ResampleWeights<int32_t> across_, down_;
  Buffer<uint8_t> converted_;  // one converted row of NV12
  Buffer<uint8_t> rows_;       // `window_` rows of the result's width, or one row of the picture's
  Buffer<int32_t> sums_;       // for one row
  RowLayout layout_;
};

}  // namespace anoco
