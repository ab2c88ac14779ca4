#include "picture/augmentation.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "failure.hpp"
#include "picture/sample.hpp"

namespace anoco {
namespace {

constexpr double kTemperature =
    0.1;  // of the entropy weights, see anoco_edge/pipeline/augmentation.py

// Returns the transform from the source to the view.
Affine inverse(const Affine& view) {
  const auto& [a, b, c, d, e, f] = view;
  const double det = a * e - b * d;
  return {e / det, -b / det, (b * f - c * e) / det, -d / det, a / det, (c * d - a * f) / det};
}

// Clips a position to the grid. NaN is clipped as well: it then lies on the ring around the grid,
// where nothing is scored.
double clipped(double position, int64_t most) {
  return std::max(0.0, std::min(position, double(most)));
}

void refuse_nonsense(const float* energy, const uint8_t* scored, int64_t patches) {
  for (int64_t i = 0; i < patches; ++i)
    if (scored[i] != 0 && !(energy[i] >= 0 && std::isfinite(energy[i])))
      fail(ANOCO_CORRUPT, "the energy of patch " + std::to_string(i) + " of a view is " +
                              std::to_string(energy[i]) + ": check the backbone and its input");
}

// Returns the weight of a view: the more concentrated its energies, the larger it is.
double entropy_weight(const float* energy, const uint8_t* scored, int64_t patches) {
  const double level = std::exp(-1 / kTemperature);
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < patches; ++i)
    if (scored[i] != 0) {
      sum += double(energy[i]);
      ++count;
    }
  // A single patch is flat and peaked at once, so it must not outweigh other views.
  if (count < 2 || sum == 0) return level;
  double entropy = 0;
  for (int64_t i = 0; i < patches; ++i)
    if (scored[i] != 0 && energy[i] > 0) {
      const double share = double(energy[i]) / sum;
      entropy -= share > 0 ? share * std::log(share) : 0;
    }
  return std::exp(-(entropy / std::log(double(count))) / kTemperature);
}

}  // namespace

void warp(const uint8_t* rgb, int64_t width, int64_t height, const Affine& view,
          const std::array<uint8_t, 3>& fill, uint8_t* out) {
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x, out += 3) {
      const Sample sample = sample_at(view, x, y, width, height);
      if (sample.outside) {
        std::memcpy(out, fill.data(), 3);
        continue;
      }
      for (int64_t c = 0; c < 3; ++c)
        out[c] = uint8_t(sample.between(
            [&](int64_t sx, int64_t sy) { return int(rgb[3 * (sy * width + sx) + c]); }));
    }
}

Box box_in_source(const Affine& view, const Box& box) {
  const auto& [a, b, c, d, e, f] = view;
  Box around;
  bool first = true;
  for (const double x : {box.x0, box.x1})
    for (const double y : {box.y0, box.y1}) {
      const double sx = a * x + b * y + c, sy = d * x + e * y + f;
      around.x0 = first ? sx : std::min(around.x0, sx);
      around.y0 = first ? sy : std::min(around.y0, sy);
      around.x1 = first ? sx : std::max(around.x1, sx);
      around.y1 = first ? sy : std::max(around.y1, sy);
      first = false;
    }
  return around;
}

std::pair<int64_t, int64_t> patch_in_source(const InputContract& contract, const Box& box) {
  // Clipped as a double first, because a view in a file may lead anywhere.
  const auto patch = [&](double from, double to, int64_t count) {
    const double center = (from + to) / 2 / double(contract.stride);
    return int64_t(std::min(std::max(0.0, center), double(count - 1)));
  };
  return {patch(box.y0, box.y1, contract.rows), patch(box.x0, box.x1, contract.cols)};
}

template <class Each>
void ViewAverage::each_buffer(const InputContract& contract, Each&& each) {
  each(&ViewAverage::total_, contract.patches());
  each(&ViewAverage::weight_, contract.patches());
}

ViewAverage::ViewAverage(const InputContract& contract)
    : rows_(contract.rows), cols_(contract.cols), stride_(double(contract.stride)) {
  each_buffer(contract, BufferAllocator{*this});
  start();
}

int64_t ViewAverage::bytes(const InputContract& contract) {
  return count_bytes([&](auto& each) { each_buffer(contract, each); });
}

void ViewAverage::start() {
  std::fill_n(total_.data(), total_.size(), 0.0);
  std::fill_n(weight_.data(), weight_.size(), 0.0);
}

void ViewAverage::add(const Affine& view, const float* energy, const uint8_t* scored) {
  refuse_nonsense(energy, scored, rows_ * cols_);
  const double trust = entropy_weight(energy, scored, rows_ * cols_);
  const auto [a, b, c, d, e, f] = inverse(view);
  for (int64_t row = 0; row < rows_; ++row)
    for (int64_t col = 0; col < cols_; ++col) {
      const double x = (double(col) + 0.5) * stride_, y = (double(row) + 0.5) * stride_;
      const double u = (a * x + b * y + c) / stride_ + 0.5;
      const double v = (d * x + e * y + f) / stride_ + 0.5;
      add_patch(row * cols_ + col, clipped(u, cols_ + 1), clipped(v, rows_ + 1), trust, energy,
                scored);
    }
}

// `u, v` is the center of the patch in the view, in patches. 1 is the center of the first patch,
// because a ring of patches that are not scored surrounds the grid.
void ViewAverage::add_patch(int64_t patch, double u, double v, double trust, const float* energy,
                            const uint8_t* scored) {
  const auto counts = [&](int64_t row, int64_t col) {
    return row >= 1 && row <= rows_ && col >= 1 && col <= cols_ &&
           scored[(row - 1) * cols_ + col - 1] != 0;
  };
  // The view sees the patch if the patch of the view that contains the center is scored.
  if (!counts(int64_t(std::floor(v + 0.5)), int64_t(std::floor(u + 0.5)))) return;
  const int64_t left = int64_t(std::floor(u)), top = int64_t(std::floor(v));
  const double across = u - double(left), down = v - double(top);
  double total = 0, weight = 0;
  for (const int64_t row : {top, top + 1})
    for (const int64_t col : {left, left + 1}) {
      if (!counts(row, col)) continue;
      const double share = (row == top ? 1 - down : down) * (col == left ? 1 - across : across);
      total += share * double(energy[(row - 1) * cols_ + col - 1]);
      weight += share;
    }
  // The weight is at least a quarter: that of the patch which contains the center.
  total_[patch] += trust * double(float(total / weight));
  weight_[patch] += trust;
}

void ViewAverage::finish(const uint8_t* scored, float* out) const {
  for (int64_t i = 0; i < total_.size(); ++i)
    if (scored[i] != 0 && weight_[i] == 0)
      fail(ANOCO_INTERNAL, "patch " + std::to_string(i) +
                               " is seen by no view: the first view must be the identity");
  for (int64_t i = 0; i < total_.size(); ++i)
    out[i] = scored[i] != 0 ? float(total_[i] / weight_[i]) : 0.0f;
}

}  // namespace anoco
