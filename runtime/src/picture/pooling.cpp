#include "picture/pooling.hpp"

#include <algorithm>
#include <array>

namespace anoco {

void smooth_grid(const float* energy, const uint8_t* scored, int64_t rows, int64_t cols,
                 float* out) {
  constexpr double kWeights[3][3] = {{kSmoothCorner, kSmoothSide, kSmoothCorner},
                                     {kSmoothSide, 1.0, kSmoothSide},
                                     {kSmoothCorner, kSmoothSide, kSmoothCorner}};
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = 0; col < cols; ++col) {
      const int64_t here = row * cols + col;
      double total = 0, weight = 0;
      for (int64_t r = std::max<int64_t>(row - 1, 0); r < std::min(row + 2, rows); ++r)
        for (int64_t c = std::max<int64_t>(col - 1, 0); c < std::min(col + 2, cols); ++c) {
          if (!scored[r * cols + c]) continue;
          const double share = kWeights[r - row + 1][c - col + 1];
          total += share * double(energy[r * cols + c]);
          weight += share;
        }
      out[here] = scored[here] ? float(total / weight) : 0.0f;
    }
}

Pooled pool(const float* energy, const uint8_t* scored, int64_t patches, Pooling pooling) {
  std::array<float, 5> largest{};  // descending; energies are never negative
  int64_t count = 0;
  Pooled found;
  float peak = -1;
  for (int64_t p = 0; p < patches; ++p) {
    if (!scored[p]) continue;
    if (energy[p] > peak) {
      peak = energy[p];
      found.peak = p;
    }
    ++count;
    float value = energy[p];
    for (float& place : largest)
      if (value > place) std::swap(value, place);
  }
  if (pooling != Pooling::top5) {
    found.score = peak;
    return found;
  }
  double sum = 0;
  for (const float value : largest) sum += value;
  found.score = sum / double(std::min<int64_t>(count, int64_t(largest.size())));
  return found;
}

}  // namespace anoco
