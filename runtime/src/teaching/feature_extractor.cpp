#include "teaching/feature_extractor.hpp"

#include <utility>

namespace anoco {

FeatureExtractor::FeatureExtractor(const InputContract& window, const Product& product,
                                   std::optional<Mask> ignore, std::shared_ptr<const Engine> engine,
                                   int64_t max_width, int64_t max_height)
    : tiling_(window, product.tiles),
      preparer_(input(), max_width, max_height),
      patch_mask_(input(), product.region, std::move(ignore)),
      request_(std::move(engine)),
      pixels_(input().width * input().height * 3) {}

FeatureExtractor::PatchFeatures FeatureExtractor::extract(const Rgb& picture) {
  anoco_image image = ANOCO_IMAGE_INIT;
  image.data = picture.pixels;
  image.width = picture.width;
  image.height = picture.height;
  const Placement placement = preparer_.prepare(checked_image(&image), pixels_.data());
  const uint8_t* scored = patch_mask_.scored(placement);
  return {tiling_.features(request_, pixels_.data()), scored};
}

}  // namespace anoco
