// From a picture to the features of its patches, for one product that is taught.
#pragma once

#include <memory>

#include "buffer.hpp"
#include "bundle/bundle.hpp"
#include "detector/tiling.hpp"
#include "engine/engine.hpp"
#include "picture/patch_mask.hpp"
#include "picture/prepare.hpp"

namespace anoco {

// A picture as RGB without gaps.
struct Rgb {
  int64_t width = 0, height = 0;
  const uint8_t* pixels = nullptr;
};

class PictureReader {
 public:
  // For pictures of up to this size.
  PictureReader(const InputContract& window, const Product& product, std::optional<Mask> ignore,
                std::shared_ptr<const Engine> engine, int64_t max_width, int64_t max_height);

  const InputContract& canvas() const { return canvas_.contract(); }

  struct Grid {
    const float* features;   // of every patch
    const uint8_t* counted;  // 1 where it counts
  };
  // Valid until the next call.
  Grid read(const Rgb& picture);

 private:
  Canvas canvas_;
  Preparer preparer_;
  Counter counter_;
  Request request_;
  Buffer<uint8_t> pixels_;
};

}  // namespace anoco
