#include "picture/resize.hpp"

#include <algorithm>

namespace anoco {
namespace {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

// Rounded weights may add up to slightly more than one. For the sizes that are allowed the sum
// stays below 256, but a mistake there would turn white into black, so it is clipped.
uint8_t to_byte(int32_t sum) { return uint8_t(std::min(sum >> kWeightBits, 255)); }

// kReach is the number of inputs per output if it is known at compile time, else 0.
template <int kStep, int kChannels, int kReach>
void resize_row(const ResampleWeights<int32_t>& axis, const uint8_t* row, uint8_t* out) {
  const int64_t outputs = axis.outputs(), reach = kReach != 0 ? kReach : axis.reach();
  for (int64_t i = 0; i < outputs; ++i, out += kChannels) {
    const uint8_t* pixel = row + axis.first(i) * kStep;
    const int32_t* weights = axis.weights(i);
    int32_t sums[kChannels];
    for (int c = 0; c < kChannels; ++c) sums[c] = kHalf;
    for (int64_t k = 0; k < reach; ++k, pixel += kStep)
      for (int c = 0; c < kChannels; ++c) sums[c] += pixel[c] * weights[k];
    for (int c = 0; c < kChannels; ++c) out[c] = to_byte(sums[c]);
  }
}

template <int kStep, int kChannels>
void resize_row(const ResampleWeights<int32_t>& axis, const uint8_t* row, uint8_t* out) {
  switch (axis.reach()) {  // to a third of the size and larger
    case 2: return resize_row<kStep, kChannels, 2>(axis, row, out);
    case 3: return resize_row<kStep, kChannels, 3>(axis, row, out);
    case 4: return resize_row<kStep, kChannels, 4>(axis, row, out);
    case 5: return resize_row<kStep, kChannels, 5>(axis, row, out);
    case 6: return resize_row<kStep, kChannels, 6>(axis, row, out);
    default: return resize_row<kStep, kChannels, 0>(axis, row, out);
  }
}

}  // namespace

template <class Each>
void Resizer::each_buffer(int64_t max_width, int64_t max_height, int64_t width, int64_t height,
                          int64_t window, Each&& each) {
  each.part(&Resizer::across_, max_width, width);
  each.part(&Resizer::down_, max_height, height);
  each(&Resizer::converted_, 3 * max_width);
  each(&Resizer::rows_, std::max(4 * max_width, 3 * width * window));
  each(&Resizer::sums_, std::max(4 * max_width, 3 * width));
}

Resizer::Resizer(int64_t max_width, int64_t max_height, int64_t width, int64_t height,
                 int64_t window)
    : window_(window) {
  each_buffer(max_width, max_height, width, height, window, BufferAllocator{*this});
}

int64_t Resizer::bytes(int64_t max_width, int64_t max_height, int64_t width, int64_t height,
                       int64_t window) {
  return count_bytes(
      [&](auto& each) { each_buffer(max_width, max_height, width, height, window, each); });
}

bool Resizer::goes_down_first(const anoco_image& image, int64_t width, int64_t height) {
  return image.height > height && image.height - height > 2 * (image.width - width);
}

void Resizer::resize(const anoco_image& image, int64_t width, int64_t height, uint8_t* out,
                     int64_t stride) {
  layout_ = row_layout(image.format);
  across_.set(image.width, width);
  down_.set(image.height, height);
  if (goes_down_first(image, width, height))
    down_first(image, out, stride);
  else
    across_first(image, out, stride);
  for (int64_t y = 0; y < height; ++y) color_row(layout_, out + y * stride, width);
}

void Resizer::across_first(const anoco_image& image, uint8_t* out, int64_t stride) {
  const int64_t bytes = across_.outputs() * layout_.channels;
  const auto slot = [&](int64_t y) { return rows_.data() + y % window_ * bytes; };
  int64_t ready = 0;  // rows of the picture that were resized; the last `window_` are kept
  for (int64_t y = 0; y < down_.outputs(); ++y, out += stride) {
    if (image.height == down_.outputs()) {
      across(image, picture_row(image, y, converted_.data()), out);
      continue;
    }
    const int64_t first = down_.first(y);
    for (; ready < first + down_.reach(); ++ready)
      across(image, picture_row(image, ready, converted_.data()), slot(ready));
    std::fill_n(sums_.data(), bytes, kHalf);
    for (int64_t k = 0; k < down_.reach(); ++k) add(slot(first + k), bytes, down_.weights(y)[k]);
    finish(bytes, out);
  }
}

void Resizer::down_first(const anoco_image& image, uint8_t* out, int64_t stride) {
  const int64_t bytes = image.width * layout_.step;
  for (int64_t y = 0; y < down_.outputs(); ++y, out += stride) {
    std::fill_n(sums_.data(), bytes, kHalf);
    for (int64_t k = 0; k < down_.reach(); ++k)
      add(picture_row(image, down_.first(y) + k, converted_.data()), bytes, down_.weights(y)[k]);
    finish(bytes, rows_.data());
    across(image, rows_.data(), out);
  }
}

void Resizer::across(const anoco_image& image, const uint8_t* row, uint8_t* out) const {
  if (image.width == across_.outputs())
    pack_row(layout_, row, image.width, out);
  else if (layout_.step == 3)
    resize_row<3, 3>(across_, row, out);
  else if (layout_.step == 4)
    resize_row<4, 3>(across_, row, out);
  else
    resize_row<1, 1>(across_, row, out);
}

void Resizer::add(const uint8_t* row, int64_t count, int32_t weight) {
  if (weight == 0) return;
  int32_t* sums = sums_.data();
  for (int64_t i = 0; i < count; ++i) sums[i] += row[i] * weight;
}

void Resizer::finish(int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_byte(sums_[i]);
}

}  // namespace anoco
