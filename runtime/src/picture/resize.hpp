// Pillow's 8-bit antialiased bilinear resize, bit for bit, streaming: a few rows are kept, never
// the picture between its two passes.
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
  // Room for pictures of up to max_width x max_height, made into up to width x height; while a
  // row of the result is made of at most `window` rows of the picture.
  Resizer(int64_t max_width, int64_t max_height, int64_t width, int64_t height, int64_t window);
  static int64_t bytes(int64_t max_width, int64_t max_height, int64_t width, int64_t height,
                       int64_t window);

  // Pillow 13 goes down first where that leaves it less to do; the last bit depends on the order.
  static bool goes_down_first(const anoco_image& image, int64_t width, int64_t height);

  // RGB; `stride` bytes from row to row of `out`.
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
  Buffer<uint8_t> converted_;  // a row of NV12
  Buffer<uint8_t> rows_;       // `window_` rows of the result's width, or one of the picture's
  Buffer<int32_t> sums_;       // of one row
  RowLayout layout_;
};

}  // namespace anoco
