// Preprocesses the caller's picture into the model's input: colors, Pillow's resize, letterbox.
#pragma once

#include <cstdint>

#include "anoco_edge.h"
#include "bundle/schema.hpp"
#include "picture/enlarge.hpp"
#include "picture/placement.hpp"
#include "picture/resize.hpp"

namespace anoco {

// Checks a picture of the caller and fills in its defaults (ANOCO_INVALID_ARGUMENT,
// ANOCO_BAD_PICTURE).
anoco_image checked_image(const anoco_image* image);

// Refuses a picture that is not in memory of the host.
void check_on_host(const anoco_image& image);

// Writes the picture as RGB without gaps, width x height x 3 bytes.
void to_rgb(const anoco_image& image, uint8_t* out);

// Preprocesses pictures of up to a given size for one contract. All memory is taken when it is
// made.
class Preparer {
 public:
  Preparer() = default;
  Preparer(const InputContract& contract, int64_t max_width, int64_t max_height);
  static int64_t bytes(const InputContract& contract, int64_t max_width, int64_t max_height);

  bool fits(int64_t width, int64_t height) const;
  // Writes contract.height x contract.width x 3 bytes of RGB, bit for bit those of the Python
  // package. The picture must fit.
  Placement prepare(const anoco_image& image, uint8_t* out);
  // Enlarges a map of the input to the picture's size, as the Python package does.
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
