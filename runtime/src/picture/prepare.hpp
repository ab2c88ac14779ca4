// From the caller's picture to the model's input: colours, Pillow's resize, letterbox.
#pragma once

#include <cstdint>

#include "anoco_edge.h"
#include "bundle/schema.hpp"
#include "picture/enlarge.hpp"
#include "picture/placement.hpp"
#include "picture/resize.hpp"

namespace anoco {

// Checks a picture that came from outside (ANOCO_INVALID_ARGUMENT, ANOCO_BAD_PICTURE).
anoco_image checked_image(const anoco_image* image);

// The same for what reads pixels on the host.
void check_on_host(const anoco_image& image);

// The picture as RGB without gaps, width x height x 3.
void to_rgb(const anoco_image& image, uint8_t* out);

// Prepares pictures of up to a given size for one contract. Memory is taken when it is made.
class Preparer {
 public:
  Preparer() = default;
  Preparer(const InputContract& contract, int64_t max_width, int64_t max_height);
  static int64_t bytes(const InputContract& contract, int64_t max_width, int64_t max_height);

  bool fits(int64_t width, int64_t height) const;
  // contract.height x contract.width x 3 bytes of RGB, bit for bit what anoco_edge.preprocess
  // gives. The picture must fit.
  Placement prepare(const anoco_image& image, uint8_t* out);
  // A map of the canvas at the picture's size, as anoco_edge.maps.enlarge gives it.
  void enlarge(const float* map, const Placement& placement, float* out);

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(const InputContract& contract, int64_t max_width, int64_t max_height,
                          Each&& each);

  InputContract contract_;
  int64_t max_width_ = 0, max_height_ = 0;
  Resizer resizer_;
  Enlarger enlarger_;
};

}  // namespace anoco
