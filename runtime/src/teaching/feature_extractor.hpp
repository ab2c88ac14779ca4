// Extracts the features of the patches of a picture, for one product.
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

class FeatureExtractor {
 public:
  // Takes memory for pictures of up to this size.
  FeatureExtractor(const InputContract& window, const Product& product, std::optional<Mask> ignore,
                   std::shared_ptr<const Engine> engine, int64_t max_width, int64_t max_height);

  const InputContract& input() const { return tiling_.input(); }
  const Engine& engine() const { return request_.engine(); }

  struct PatchFeatures {
    const float* features;  // for every patch
    const uint8_t* scored;  // 1 where it is scored
  };
  // The result is valid until the next call.
  PatchFeatures extract(const Rgb& picture);

 private:
  Tiling tiling_;
  Preparer preparer_;
  PatchMask patch_mask_;
  Request request_;
  Buffer<uint8_t> pixels_;
};

}  // namespace anoco
