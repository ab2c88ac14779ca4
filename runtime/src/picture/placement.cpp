#include "picture/placement.hpp"

#include <algorithm>
#include <cmath>

namespace anoco {
namespace {

// Rounds as Python's round() does: halves go to the even number, which is the default rounding mode
// of every thread.
int64_t rounded(double value) { return int64_t(std::nearbyint(value)); }

double clipped(double value, int64_t most) { return std::min(std::max(value, 0.0), double(most)); }

}  // namespace

bool same_shape(int64_t width, int64_t height, int64_t other_width, int64_t other_height) {
  constexpr double kTolerance = 0.05;  // the same as in Python
  const double ratio = double(width * other_height) / double(height * other_width);
  return std::abs(ratio - 1) <= kTolerance;
}

Placement place(const InputContract& contract, int64_t width, int64_t height) {
  if (contract.fit == Fit::stretch) return {width, height, 0, 0, contract.width, contract.height};
  const double scale =
      std::min(double(contract.width) / double(width), double(contract.height) / double(height));
  const int64_t inner_width =
      std::min(contract.width, std::max<int64_t>(1, rounded(double(width) * scale)));
  const int64_t inner_height =
      std::min(contract.height, std::max<int64_t>(1, rounded(double(height) * scale)));
  return {width,
          height,
          (contract.width - inner_width) / 2,
          (contract.height - inner_height) / 2,
          inner_width,
          inner_height};
}

Box Placement::to_picture(const Box& box) const {
  const double sx = double(picture_width) / double(width);
  const double sy = double(picture_height) / double(height);
  const double x = double(left), y = double(top);
  return {clipped((box.x0 - x) * sx, picture_width), clipped((box.y0 - y) * sy, picture_height),
          clipped((box.x1 - x) * sx, picture_width), clipped((box.y1 - y) * sy, picture_height)};
}

double Placement::area_scale() const {
  return double(picture_width * picture_height) / double(width * height);
}

bool Placement::operator==(const Placement& other) const {
  return picture_width == other.picture_width && picture_height == other.picture_height &&
         left == other.left && top == other.top && width == other.width && height == other.height;
}

Box patch_box(const InputContract& contract, int64_t row, int64_t col) {
  const int64_t s = contract.stride;
  return {double(col * s), double(row * s), double((col + 1) * s), double((row + 1) * s)};
}

}  // namespace anoco
