// Views of a picture (test-time augmentation), as anoco_edge/views.py warps and averages them.
#pragma once

#include <array>
#include <cstdint>

#include "buffer_list.hpp"
#include "picture/placement.hpp"

namespace anoco {

// Pillow's AFFINE transform, bilinear, of width x height x 3 bytes; `fill` beyond the picture.
void warp(const uint8_t* rgb, int64_t width, int64_t height, const Affine& view,
          const std::array<uint8_t, 3>& fill, uint8_t* out);

// The smallest box around a view's box in its source.
Box box_in_source(const Affine& view, const Box& box);

// One grid from those of all views, by their entropy weights. Memory is taken when it is made.
class ViewAverage {
 public:
  explicit ViewAverage(const InputContract& contract);
  static int64_t bytes(const InputContract& contract);

  void start();
  // Throws Failure (ANOCO_CORRUPT) where an energy is no number or negative.
  void add(const Affine& view, const float* energy, const uint8_t* scored);
  // `counted` is the identity's.
  void finish(const uint8_t* scored, float* out) const;

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(const InputContract& contract, Each&& each);
  void add_patch(int64_t patch, double u, double v, double trust, const float* energy,
                 const uint8_t* scored);

  int64_t rows_, cols_;
  double stride_;
  Buffer<double> total_, weight_;
};

}  // namespace anoco
