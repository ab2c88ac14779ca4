#include "picture/prepare.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace anoco {
namespace {

// The most rows of a picture that contribute to one row of the input. With a letterbox both sides
// shrink by the larger ratio, and rounding can remove up to a third of the rows: 1.49 rows become
// one.
int64_t most_rows(const InputContract& contract, int64_t max_width, int64_t max_height) {
  const double down = double(max_height) / double(contract.height);
  const double across = double(max_width) / double(contract.width);
  const double scale = contract.fit == Fit::stretch ? down : 1.5 * std::max(down, across);
  return std::min(max_height, ResampleWeights<int32_t>::longest(scale));
}

void fill_pixels(uint8_t* out, int64_t count, const std::array<uint8_t, 3>& fill) {
  for (int64_t i = 0; i < count; ++i, out += 3) std::memcpy(out, fill.data(), 3);
}

// Fills the area beside the picture.
void fill_around(const InputContract& contract, const Placement& p, uint8_t* out) {
  const int64_t right = p.left + p.width, bottom = p.top + p.height;
  for (int64_t y = 0; y < contract.height; ++y, out += 3 * contract.width) {
    const bool beside = y >= p.top && y < bottom;
    fill_pixels(out, beside ? p.left : contract.width, contract.fill);
    if (beside) fill_pixels(out + 3 * right, contract.width - right, contract.fill);
  }
}

}  // namespace

template <class Each>
void Preparer::each_buffer(const InputContract& contract, int64_t max_width, int64_t max_height,
                           Each&& each) {
  each.part(&Preparer::resizer_, max_width, max_height, contract.width, contract.height,
            most_rows(contract, max_width, max_height));
  each.part(&Preparer::enlarger_, contract.width, contract.height, max_width, max_height);
}

Preparer::Preparer(const InputContract& contract, int64_t max_width, int64_t max_height)
    : contract_(contract), max_width_(max_width), max_height_(max_height) {
  each_buffer(contract, max_width, max_height, BufferAllocator{*this});
}

int64_t Preparer::bytes(const InputContract& contract, int64_t max_width, int64_t max_height) {
  return count_bytes([&](auto& each) { each_buffer(contract, max_width, max_height, each); });
}

bool Preparer::fits(int64_t width, int64_t height) const {
  return width <= max_width_ && height <= max_height_;
}

Placement Preparer::prepare(const anoco_image& image, uint8_t* out) {
  const Placement p = place(contract_, image.width, image.height);
  const int64_t stride = 3 * contract_.width;
  resizer_.resize(image, p.width, p.height, out + p.top * stride + 3 * p.left, stride);
  fill_around(contract_, p, out);
  return p;
}

void Preparer::enlarge(const float* map, const Placement& placement, float* out) {
  enlarger_.enlarge(map, contract_.width, placement, out);
}

}  // namespace anoco
