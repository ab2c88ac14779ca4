#include "picture/patch_mask.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "failure.hpp"
#include "picture/augmentation.hpp"
#include "picture/sample.hpp"

namespace anoco {
namespace {

// Steps through the source as Pillow's NEAREST resize does, adding the step from center to center.
// A position that rounding carries beyond the last pixel stays empty (-1).
class Nearest {
 public:
  Nearest(int64_t inputs, int64_t outputs)
      : inputs_(inputs), step_(double(inputs) / double(outputs)), at_(step_ * 0.5) {}
  int32_t next() {
    const int64_t source = int64_t(at_);
    at_ += step_;
    return source < inputs_ ? int32_t(source) : -1;
  }

 private:
  int64_t inputs_;
  double step_, at_;
};

}  // namespace

template <class Each>
void PatchMask::each_buffer(const InputContract& contract, Each&& each) {
  each(&PatchMask::wanted_, contract.width * contract.height);
  each(&PatchMask::whole_, contract.patches());
  each(&PatchMask::plain_, contract.patches());
  each(&PatchMask::viewed_, contract.patches());
  each(&PatchMask::across_, contract.width);
  each(&PatchMask::inside_, contract.width);
  each(&PatchMask::columns_, contract.width);
}

PatchMask::PatchMask(const InputContract& contract, std::vector<Point> region,
                     std::optional<Mask> ignore)
    : contract_(contract), region_(std::move(region)), ignore_(std::move(ignore)) {
  each_buffer(contract, BufferAllocator{*this});
}

int64_t PatchMask::bytes(const InputContract& contract, const std::vector<Point>&,
                         const std::optional<Mask>&) {
  return count_bytes([&](auto& each) { each_buffer(contract, each); });
}

const uint8_t* PatchMask::scored(const Placement& placement, const Affine& view) {
  if (!(placement == placement_)) {
    placement_ = placement;
    view_.reset();
    mark_wanted();
    mark_patches();
  }
  if (view == kIdentity) {
    if (std::count(plain_.data(), plain_.data() + plain_.size(), 1) == 0)
      fail(ANOCO_INVALID_ARGUMENT,
           "region of interest and mask leave no patch to inspect: widen them with anoco-edge "
           "product set");
    return plain_.data();
  }
  if (view_ != view) {
    view_ = view;
    for (int64_t row = 0; row < contract_.rows; ++row)
      for (int64_t col = 0; col < contract_.cols; ++col)
        viewed_[row * contract_.cols + col] =
            surely_seen(view, row, col) || seen(view, row, col) ? 1 : 0;
  }
  return viewed_.data();
}

bool PatchMask::in_picture(int64_t x, int64_t y) const {
  const Placement& p = placement_;
  return x >= p.left && x < p.left + p.width && y >= p.top && y < p.top + p.height;
}

void PatchMask::mark_wanted() {
  const Placement& p = placement_;
  for (int64_t x = 0; x < contract_.width; ++x)
    across_[x] = (double(x) + 0.5 - double(p.left)) / double(p.width);
  std::memset(wanted_.data(), 0, size_t(wanted_.size()));
  for (int64_t y = p.top; y < p.top + p.height; ++y) {
    uint8_t* row = wanted_.data() + y * contract_.width;
    std::memset(row + p.left, 1, size_t(p.width));
    if (!region_.empty()) mark_region(y, row);
  }
  if (ignore_.has_value()) mark_ignored();
}

// Clears the pixels whose center lies outside the polygon, by the even-odd rule.
void PatchMask::mark_region(int64_t y, uint8_t* row) {
  const double at = (double(y) + 0.5 - double(placement_.top)) / double(placement_.height);
  std::memset(inside_.data(), 0, size_t(inside_.size()));
  for (size_t i = 0; i < region_.size(); ++i) {
    const auto [x0, y0] = region_[i];
    const auto [x1, y1] = region_[i != 0 ? i - 1 : region_.size() - 1];
    if ((y0 <= at) == (y1 <= at)) continue;
    const double edge = x0 + (at - y0) * (x1 - x0) / (y1 - y0);
    const double* end = std::lower_bound(across_.data(), across_.data() + across_.size(), edge);
    for (uint8_t* flip = inside_.data(); flip < inside_.data() + (end - across_.data()); ++flip)
      *flip ^= 1;
  }
  for (int64_t x = 0; x < contract_.width; ++x) row[x] &= inside_[x];
}

void PatchMask::mark_ignored() {
  const Placement& p = placement_;
  Nearest across(ignore_->width, p.width), down(ignore_->height, p.height);
  for (int64_t x = 0; x < p.width; ++x) columns_[x] = across.next();
  for (int64_t y = p.top; y < p.top + p.height; ++y) {
    const int64_t source = down.next();
    if (source < 0) continue;
    const uint8_t* mask = ignore_->set.data() + source * ignore_->width;
    uint8_t* row = wanted_.data() + y * contract_.width + p.left;
    for (int64_t x = 0; x < p.width; ++x)
      if (columns_[x] >= 0 && mask[columns_[x]] != 0) row[x] = 0;
  }
}

// A patch is scored if it touches no fill and more than half of its pixels are wanted.
void PatchMask::mark_patches() {
  const int64_t s = contract_.stride;
  for (int64_t row = 0; row < contract_.rows; ++row)
    for (int64_t col = 0; col < contract_.cols; ++col) {
      int64_t wanted = 0;
      for (int64_t y = row * s; y < (row + 1) * s; ++y) {
        const uint8_t* first = wanted_.data() + y * contract_.width + col * s;
        wanted += std::count(first, first + s, 1);
      }
      const bool picture =
          in_picture(col * s, row * s) && in_picture(col * s + s - 1, row * s + s - 1);
      const int64_t patch = row * contract_.cols + col;
      plain_[patch] = picture && 2 * wanted > s * s ? 1 : 0;
      whole_[patch] = wanted == s * s ? 1 : 0;
    }
}

// A patch of a view is scored if none of its samples comes from fill or from outside the input, and
// more than half of them come from wanted pixels. It is sampled as its pixels are.
bool PatchMask::seen(const Affine& view, int64_t row, int64_t col) const {
  const int64_t s = contract_.stride;
  double wanted = 0;
  for (int64_t y = row * s; y < (row + 1) * s; ++y)
    for (int64_t x = col * s; x < (col + 1) * s; ++x) {
      const Sample sample = sample_at(view, x, y, contract_.width, contract_.height);
      if (sample.outside) return false;
      // The value is rounded as Pillow stores it: a share of fill below 2^-25 vanishes.
      if (float(sample.between(
              [&](int64_t sx, int64_t sy) { return in_picture(sx, sy) ? 1.0f : 0.0f; })) != 1)
        return false;
      wanted += double(float(sample.between(
          [&](int64_t sx, int64_t sy) { return float(wanted_[sy * contract_.width + sx]); })));
    }
  return wanted / double(s * s) > 0.5;
}

// A cheaper test that most patches pass: all patches that they could sample from are wanted as a
// whole.
bool PatchMask::surely_seen(const Affine& view, int64_t row, int64_t col) const {
  constexpr double kRounding = 0.01;  // in pixels, far above any rounding error
  const double reach = 0.5 + kRounding;
  const int64_t s = contract_.stride;
  const Box pixels{double(col * s) + 0.5, double(row * s) + 0.5, double(col * s + s) - 0.5,
                   double(row * s + s) - 0.5};
  const Box box = box_in_source(view, pixels);
  if (!(box.x0 > kRounding && box.x1 < double(contract_.width) - kRounding && box.y0 > kRounding &&
        box.y1 < double(contract_.height) - kRounding))
    return false;
  const auto patch = [&](double position, int64_t pixels_there) {
    return std::clamp<int64_t>(int64_t(std::floor(position)), 0, pixels_there - 1) / s;
  };
  for (int64_t r = patch(box.y0 - reach, contract_.height);
       r <= patch(box.y1 + reach, contract_.height); ++r)
    for (int64_t c = patch(box.x0 - reach, contract_.width);
         c <= patch(box.x1 + reach, contract_.width); ++c)
      if (whole_[r * contract_.cols + c] == 0) return false;
  return true;
}

}  // namespace anoco
