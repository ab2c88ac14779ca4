#include "detector/workspace.hpp"

#include <algorithm>

#include "failure.hpp"

namespace anoco {

PictureSize largest_picture(const LoadedProduct& product, const ContextSettings& settings) {
  PictureSize size{std::max<int64_t>(settings.max_width, 1),
                   std::max<int64_t>(settings.max_height, 1)};
  if (!product.product().references.empty()) {
    const Reference& first = product.product().references.front();
    size = {std::max(size.width, first.width), std::max(size.height, first.height)};
  }
  return size;
}

bool has_query_views(const LoadedProduct& product) {
  return product.product().tta == Tta::paper && !product.product().views.empty();
}

bool gathers(const LoadedProduct& product) {
  return !product.all_scored() || has_query_views(product);
}

Settings scorer_settings(const LoadedProduct& product, const ContextSettings& context,
                         int64_t memory) {
  Settings settings = product.method();
  settings.threads = context.threads;
  settings.memory = memory_of(context.memory_mb, memory);
  settings.pin = context.pin;
  return settings;
}

template <class Each>
void Workspace::each_buffer(const LoadedProduct& product, const ContextSettings& settings,
                            Each&& each) {
  const InputContract& input = product.input();
  const PictureSize size = largest_picture(product, settings);
  each.part(&Workspace::preparer_, input, size.width, size.height);
  each.part(&Workspace::regions_, input);
  each(&Workspace::outline_, input.width * input.height);
}

Workspace::Workspace(std::shared_ptr<const LoadedProduct> product, const ContextSettings& settings)
    : product_(std::move(product)) {
  each_buffer(*product_, settings, BufferAllocator{*this});
}

int64_t Workspace::bytes(const LoadedProduct& product, const ContextSettings& settings) {
  return count_bytes([&](auto& each) { each_buffer(product, settings, each); });
}

void Workspace::inspect(const anoco_image& image) {
  times_ = {};
  product_->check_shape(image.width, image.height);
  if (!preparer_.fits(image.width, image.height))
    fail(ANOCO_BAD_PICTURE, "the picture is " + std::to_string(image.width) + "x" +
                                std::to_string(image.height) +
                                ", larger than the context was made for: see max_width and "
                                "max_height of anoco_context_options");
  found_ = compute(image, times_);
  const StageTimer timer(times_.map);
  find_regions();
}

void Workspace::find_regions() {
  std::fill_n(outline_.data(), outline_.size(), uint8_t{0});
  region_count_ = 0;
  const double threshold = product_->threshold();
  if (threshold <= 0 || found_.score <= threshold) return;
  regions_.find({found_.energy, found_.compared, found_.map}, threshold, found_.placement,
                product_->product().min_area, outline_.data());
  region_count_ = regions_.count();
}

}  // namespace anoco
