#include "picture/anomaly_map.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace anoco {
namespace {

constexpr int64_t kKernel = 7;  // this and sigma are from the paper's supplement
constexpr double kSigma = 0.8;
constexpr int64_t kSide = kKernel / 2;

// The number of patches that can contribute to a pixel: those under the Gaussian, and one more for
// the interpolation.
int64_t reach_of(int64_t patches, int64_t stride) {
  return std::min(patches, (kKernel - 1 + stride - 1) / stride + 2);
}

// Reflects a position at the border without repeating the edge pixel (dcb|abcd|cba).
int64_t reflected(int64_t pixel, int64_t pixels) {
  const int64_t period = std::max<int64_t>(2 * (pixels - 1), 1);
  const int64_t source = std::abs(pixel) % period;
  return source >= pixels ? period - source : source;
}

struct Interpolation {
  int64_t low, high;
  double share;  // the weight of `high`
};

// Bilinear interpolation with half-pixel centers and clamped edges.
Interpolation interpolation(int64_t pixel, int64_t patches, int64_t pixels) {
  const double centre = std::clamp((double(pixel) + 0.5) * double(patches) / double(pixels) - 0.5,
                                   0.0, double(patches - 1));
  const int64_t low =
      std::clamp<int64_t>(int64_t(std::floor(centre)), 0, std::max<int64_t>(patches - 2, 0));
  return {low, std::min(low + 1, patches - 1), centre - double(low)};
}

}  // namespace

template <class Each>
void AnomalyMapBuilder::Axis::each_buffer(int64_t patches, int64_t stride, Each&& each) {
  each(&Axis::weights, patches * stride * reach_of(patches, stride));
  each(&Axis::first, patches * stride);
}

int64_t AnomalyMapBuilder::Axis::bytes(int64_t patches, int64_t stride) {
  return count_bytes([&](auto& each) { each_buffer(patches, stride, each); });
}

AnomalyMapBuilder::Axis::Axis(int64_t patch_count, int64_t stride)
    : patches(patch_count), pixels(patch_count * stride), reach(reach_of(patch_count, stride)) {
  each_buffer(patch_count, stride, BufferAllocator{*this});
  double gaussian[kKernel], sum = 0;
  for (int64_t k = 0; k < kKernel; ++k)
    sum += gaussian[k] = std::exp(-double((k - kSide) * (k - kSide)) / (2 * kSigma * kSigma));
  double exact[kKernel + 1];  // the largest reach: stride 1
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    int64_t lowest = patches;
    for (int64_t k = -kSide; k <= kSide; ++k)
      lowest = std::min(lowest, interpolation(reflected(pixel + k, pixels), patches, pixels).low);
    lowest = std::min(lowest, patches - reach);
    std::fill_n(exact, reach, 0.0);
    for (int64_t k = -kSide; k <= kSide; ++k) {
      const Interpolation at = interpolation(reflected(pixel + k, pixels), patches, pixels);
      const double weight = gaussian[k + kSide] / sum;
      exact[at.low - lowest] += weight * (1 - at.share);
      exact[at.high - lowest] += weight * at.share;
    }
    first[pixel] = int32_t(lowest);
    for (int64_t k = 0; k < reach; ++k) weights[pixel * reach + k] = float(exact[k]);
  }
}

template <class Each>
void AnomalyMapBuilder::each_buffer(int64_t rows, int64_t cols, int64_t stride, Each&& each) {
  each.part(&AnomalyMapBuilder::down_, rows, stride);
  each.part(&AnomalyMapBuilder::across_, cols, stride);
  each(&AnomalyMapBuilder::energy_, rows * cols * stride);
  each(&AnomalyMapBuilder::scored_, rows * cols * stride);
  each(&AnomalyMapBuilder::weight_, cols * stride);
}

AnomalyMapBuilder::AnomalyMapBuilder(int64_t rows, int64_t cols, int64_t stride) : stride_(stride) {
  each_buffer(rows, cols, stride, BufferAllocator{*this});
}

int64_t AnomalyMapBuilder::bytes(int64_t rows, int64_t cols, int64_t stride) {
  return count_bytes([&](auto& each) { each_buffer(rows, cols, stride, each); });
}

void AnomalyMapBuilder::make(const float* energy, const uint8_t* scored, float* out) {
  const int64_t patches = down_.patches * across_.patches;
  const bool all = scored == nullptr || std::count(scored, scored + patches, 0) == 0;
  across(energy, all ? nullptr : scored, energy_);
  if (!all) across(nullptr, scored, scored_);
  for (int64_t y = 0; y < down_.pixels; ++y, out += across_.pixels) {
    down(energy_, y, out);
    if (all) continue;
    // A patch that is not scored has no energy, so its neighbors are averaged without it.
    down(scored_, y, weight_.data());
    divide(scored + y / stride_ * across_.patches, out);
  }
}

// Brings the rows of the grid to the width of the map: energies or, without a grid, the weights of
// the scored patches.
void AnomalyMapBuilder::across(const float* grid, const uint8_t* scored, Buffer<float>& out) const {
  float* to = out.data();
  for (int64_t row = 0; row < down_.patches; ++row)
    for (int64_t x = 0; x < across_.pixels; ++x, ++to) {
      const int64_t patch = row * across_.patches + across_.first[x];
      const float* weights = across_.weights.data() + x * across_.reach;
      float sum = 0;
      for (int64_t k = 0; k < across_.reach; ++k)
        if (scored == nullptr || scored[patch + k] != 0)
          sum += weights[k] * (grid == nullptr ? 1.0f : grid[patch + k]);
      *to = sum;
    }
}

void AnomalyMapBuilder::down(const Buffer<float>& rows, int64_t y, float* out) const {
  const float* weights = down_.weights.data() + y * down_.reach;
  std::fill_n(out, across_.pixels, 0.0f);
  for (int64_t k = 0; k < down_.reach; ++k) {
    const float* row = rows.data() + (down_.first[y] + k) * across_.pixels;
    for (int64_t x = 0; x < across_.pixels; ++x) out[x] += weights[k] * row[x];
  }
}

// Each pixel of a scored patch has a positive weight, because its own patch contributes to it.
void AnomalyMapBuilder::divide(const uint8_t* scored, float* out) const {
  for (int64_t x = 0; x < across_.pixels; ++x)
    out[x] = scored[x / stride_] != 0 ? out[x] / weight_[x] : 0.0f;
}

}  // namespace anoco
