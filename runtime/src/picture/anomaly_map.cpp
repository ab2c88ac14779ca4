#include "picture/anomaly_map.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace anoco {
namespace {

constexpr int64_t kKernel = 7;  // and sigma: the paper's supplement
constexpr double kSigma = 0.8;
constexpr int64_t kSide = kKernel / 2;

// Patches that one pixel may be made of: those of the window, and one more to interpolate.
int64_t reach_of(int64_t patches, int64_t stride) {
  return std::min(patches, (kKernel - 1 + stride - 1) / stride + 2);
}

// At the border the edge pixel is not repeated (dcb|abcd|cba).
int64_t reflected(int64_t pixel, int64_t pixels) {
  const int64_t period = std::max<int64_t>(2 * (pixels - 1), 1);
  const int64_t source = std::abs(pixel) % period;
  return source >= pixels ? period - source : source;
}

struct Between {
  int64_t low, high;
  double share;  // of high
};

// Bilinear, half-pixel centres, edges clamped.
Between between(int64_t pixel, int64_t patches, int64_t pixels) {
  const double centre = std::clamp((double(pixel) + 0.5) * double(patches) / double(pixels) - 0.5,
                                   0.0, double(patches - 1));
  const int64_t low =
      std::clamp<int64_t>(int64_t(std::floor(centre)), 0, std::max<int64_t>(patches - 2, 0));
  return {low, std::min(low + 1, patches - 1), centre - double(low)};
}

}  // namespace

template <class Each>
void MapMaker::Axis::each_buffer(int64_t patches, int64_t stride, Each&& each) {
  each(&Axis::weights, patches * stride * reach_of(patches, stride));
  each(&Axis::first, patches * stride);
}

int64_t MapMaker::Axis::bytes(int64_t patches, int64_t stride) {
  return count_bytes([&](auto& each) { each_buffer(patches, stride, each); });
}

MapMaker::Axis::Axis(int64_t patch_count, int64_t stride)
    : patches(patch_count), pixels(patch_count * stride), reach(reach_of(patch_count, stride)) {
  each_buffer(patch_count, stride, BufferAllocator{*this});
  double taps[kKernel], sum = 0;
  for (int64_t k = 0; k < kKernel; ++k)
    sum += taps[k] = std::exp(-double((k - kSide) * (k - kSide)) / (2 * kSigma * kSigma));
  double exact[kKernel + 1];  // the largest reach: stride 1
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    int64_t lowest = patches;
    for (int64_t k = -kSide; k <= kSide; ++k)
      lowest = std::min(lowest, between(reflected(pixel + k, pixels), patches, pixels).low);
    lowest = std::min(lowest, patches - reach);
    std::fill_n(exact, reach, 0.0);
    for (int64_t k = -kSide; k <= kSide; ++k) {
      const Between at = between(reflected(pixel + k, pixels), patches, pixels);
      const double tap = taps[k + kSide] / sum;
      exact[at.low - lowest] += tap * (1 - at.share);
      exact[at.high - lowest] += tap * at.share;
    }
    first[pixel] = int32_t(lowest);
    for (int64_t k = 0; k < reach; ++k) weights[pixel * reach + k] = float(exact[k]);
  }
}

template <class Each>
void MapMaker::each_buffer(int64_t rows, int64_t cols, int64_t stride, Each&& each) {
  each.part(&MapMaker::down_, rows, stride);
  each.part(&MapMaker::across_, cols, stride);
  each(&MapMaker::energy_, rows * cols * stride);
  each(&MapMaker::counted_, rows * cols * stride);
  each(&MapMaker::weight_, cols * stride);
}

MapMaker::MapMaker(int64_t rows, int64_t cols, int64_t stride) : stride_(stride) {
  each_buffer(rows, cols, stride, BufferAllocator{*this});
}

int64_t MapMaker::bytes(int64_t rows, int64_t cols, int64_t stride) {
  return count_bytes([&](auto& each) { each_buffer(rows, cols, stride, each); });
}

void MapMaker::make(const float* energy, const uint8_t* counted, float* out) {
  const int64_t patches = down_.patches * across_.patches;
  const bool all = counted == nullptr || std::count(counted, counted + patches, 0) == 0;
  across(energy, all ? nullptr : counted, energy_);
  if (!all) across(nullptr, counted, counted_);
  for (int64_t y = 0; y < down_.pixels; ++y, out += across_.pixels) {
    down(energy_, y, out);
    if (all) continue;
    // A patch that does not count has no energy: its neighbours are averaged without it.
    down(counted_, y, weight_.data());
    divide(counted + y / stride_ * across_.patches, out);
  }
}

// The grid's rows at the map's width: of energies, or without a grid of what counts.
void MapMaker::across(const float* grid, const uint8_t* counted, Buffer<float>& out) const {
  float* to = out.data();
  for (int64_t row = 0; row < down_.patches; ++row)
    for (int64_t x = 0; x < across_.pixels; ++x, ++to) {
      const int64_t patch = row * across_.patches + across_.first[x];
      const float* weights = across_.weights.data() + x * across_.reach;
      float sum = 0;
      for (int64_t k = 0; k < across_.reach; ++k)
        if (counted == nullptr || counted[patch + k] != 0)
          sum += weights[k] * (grid == nullptr ? 1.0f : grid[patch + k]);
      *to = sum;
    }
}

void MapMaker::down(const Buffer<float>& rows, int64_t y, float* out) const {
  const float* weights = down_.weights.data() + y * down_.reach;
  std::fill_n(out, across_.pixels, 0.0f);
  for (int64_t k = 0; k < down_.reach; ++k) {
    const float* row = rows.data() + (down_.first[y] + k) * across_.pixels;
    for (int64_t x = 0; x < across_.pixels; ++x) out[x] += weights[k] * row[x];
  }
}

// A pixel of a patch that counts has weight: its own patch has a part in it.
void MapMaker::divide(const uint8_t* counted, float* out) const {
  for (int64_t x = 0; x < across_.pixels; ++x)
    out[x] = counted[x / stride_] != 0 ? out[x] / weight_[x] : 0.0f;
}

}  // namespace anoco
