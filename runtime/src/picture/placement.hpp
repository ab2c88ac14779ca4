// Computes where a picture lies in the model's input, as anoco_edge/images/preprocess.py does.
#pragma once

#include <cstdint>

#include "bundle/schema.hpp"

namespace anoco {

struct Box {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
};

struct Placement {
  int64_t picture_width = 0, picture_height = 0;
  int64_t left = 0, top = 0, width = 0, height = 0;  // in pixels of the input

  // Converts a box of the input to pixels of the picture and clips it.
  Box to_picture(const Box& box) const;
  // Returns the number of picture pixels per input pixel.
  double area_scale() const;
  bool operator==(const Placement& other) const;
};

// Tells whether two pictures have the same aspect ratio, with some tolerance for cropping by hand.
// The same camera gives the same shape; 4:3 against 3:2 or 16:9 is another scene.
bool same_shape(int64_t width, int64_t height, int64_t other_width, int64_t other_height);

Placement place(const InputContract& contract, int64_t width, int64_t height);

// Returns the box of a patch in pixels of the input.
Box patch_box(const InputContract& contract, int64_t row, int64_t col);

}  // namespace anoco
