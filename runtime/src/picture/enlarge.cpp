#include "picture/enlarge.hpp"

#include <algorithm>

namespace anoco {

template <class Each>
void Enlarger::each_buffer(int64_t width, int64_t height, int64_t max_width, int64_t max_height,
                           Each&& each) {
  each.part(&Enlarger::across_, width, max_width);
  each.part(&Enlarger::down_, height, max_height);
  each(&Enlarger::rows_, kKept * max_width);
  each(&Enlarger::sums_, max_width);
}

Enlarger::Enlarger(int64_t width, int64_t height, int64_t max_width, int64_t max_height) {
  each_buffer(width, height, max_width, max_height, BufferAllocator{*this});
}

int64_t Enlarger::bytes(int64_t width, int64_t height, int64_t max_width, int64_t max_height) {
  return count_bytes([&](auto& each) { each_buffer(width, height, max_width, max_height, each); });
}

void Enlarger::enlarge(const float* map, int64_t stride, const Placement& p, float* out) {
  across_.set(p.width, p.picture_width);
  down_.set(p.height, p.picture_height);
  std::fill_n(kept_, kKept, -1);
  for (int64_t y = 0; y < p.picture_height; ++y, out += p.picture_width) {
    double* sums = sums_.data();
    std::fill_n(sums, p.picture_width, 0.0);
    for (int64_t k = 0; k < down_.reach(); ++k) {
      const double weight = down_.weights(y)[k];
      if (weight == 0) continue;
      const float* row = across(map, stride, p, down_.first(y) + k);
      for (int64_t x = 0; x < p.picture_width; ++x) sums[x] += row[x] * weight;
    }
    for (int64_t x = 0; x < p.picture_width; ++x) out[x] = float(sums[x]);
  }
}

const float* Enlarger::across(const float* map, int64_t stride, const Placement& p, int64_t y) {
  float* out = rows_.data() + y % kKept * p.picture_width;
  if (kept_[y % kKept] == y) return out;
  kept_[y % kKept] = y;
  const float* row = map + (p.top + y) * stride + p.left;
  for (int64_t x = 0; x < p.picture_width; ++x) {
    const double* weights = across_.weights(x);
    double sum = 0;
    for (int64_t k = 0; k < across_.reach(); ++k) sum += row[across_.first(x) + k] * weights[k];
    out[x] = float(sum);
  }
  return out;
}

}  // namespace anoco
