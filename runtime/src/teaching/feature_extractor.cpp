#include "teaching/feature_extractor.hpp"

#include <utility>

namespace anoco {

PictureReader::PictureReader(const InputContract& window, const Product& product,
                             std::optional<Mask> ignore, std::shared_ptr<const Engine> engine,
                             int64_t max_width, int64_t max_height)
    : canvas_(window, product.tiles),
      preparer_(canvas(), max_width, max_height),
      counter_(canvas(), product.region, std::move(ignore)),
      request_(std::move(engine)),
      pixels_(canvas().width * canvas().height * 3) {}

PictureReader::Grid PictureReader::read(const Rgb& picture) {
  anoco_image image = ANOCO_IMAGE_INIT;
  image.data = picture.pixels;
  image.width = picture.width;
  image.height = picture.height;
  const Placement placement = preparer_.prepare(checked_image(&image), pixels_.data());
  const uint8_t* counted = counter_.counted(placement);
  return {canvas_.features(request_, pixels_.data()), counted};
}

}  // namespace anoco
