// Warps pictures into views and averages their energies (test-time augmentation), as
// anoco_edge/pipeline/augmentation.py does.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "buffer_list.hpp"
#include "picture/placement.hpp"

namespace anoco {

// Applies Pillow's bilinear AFFINE transform to width x height x 3 bytes, with `fill` outside the
// picture.
void warp(const uint8_t* rgb, int64_t width, int64_t height, const Affine& view,
          const std::array<uint8_t, 3>& fill, uint8_t* out);

// Returns the smallest box in the source that contains a box of a view.
Box box_in_source(const Affine& view, const Box& box);

// Returns the row and the column of the patch of the source that holds the center of a box.
std::pair<int64_t, int64_t> patch_in_source(const InputContract& contract, const Box& box);

// Averages the grids of all views with entropy weights. All memory is taken when it is made.
class ViewAverage {
 public:
  explicit ViewAverage(const InputContract& contract);
  static int64_t bytes(const InputContract& contract);

  void start();
  // Throws a Failure (ANOCO_CORRUPT) if an energy is negative or not finite.
  void add(const Affine& view, const float* energy, const uint8_t* scored);
  // `scored` is the mask of the identity view.
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
