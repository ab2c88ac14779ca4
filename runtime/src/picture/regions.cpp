#include "picture/regions.hpp"

#include <algorithm>
#include <cstring>

namespace anoco {
namespace {

// A region grows from patches above the threshold to neighbors above this share of it.
constexpr double kGrow = 0.5;

// The most regions that there can be: they do not touch each other, not even at corners.
int64_t most_regions(const InputContract& contract) {
  return (contract.rows + 1) / 2 * ((contract.cols + 1) / 2);
}

}  // namespace

template <class Each>
void RegionFinder::each_buffer(const InputContract& contract, Each&& each) {
  each(&RegionFinder::seed_, contract.patches());
  each(&RegionFinder::open_, contract.patches());
  each(&RegionFinder::members_, contract.patches());
  each(&RegionFinder::found_, most_regions(contract));
  each(&RegionFinder::order_, most_regions(contract));
}

RegionFinder::RegionFinder(const InputContract& contract) : contract_(contract) {
  each_buffer(contract, BufferAllocator{*this});
}

int64_t RegionFinder::bytes(const InputContract& contract) {
  return count_bytes([&](auto& each) { each_buffer(contract, each); });
}

void RegionFinder::find(const RegionGrids& grids, double threshold, const Placement& placement,
                        double min_area, uint8_t* outline) {
  // Seeds are compared in float64 as the score is, everything else in float32 as NumPy does.
  const float level = float(kGrow * threshold);
  for (int64_t i = 0; i < contract_.patches(); ++i) {
    seed_[i] = double(grids.compared[i]) > threshold ? 1 : 0;
    open_[i] = seed_[i] != 0 || grids.compared[i] > level ? 1 : 0;
  }
  std::memset(outline, 0, size_t(contract_.width * contract_.height));
  count_ = 0;
  for (int64_t i = 0; i < contract_.patches(); ++i) {
    if (seed_[i] == 0 || open_[i] == 0) continue;
    Pixels pixels{grids.map, level, flood(i)};
    Extent extent = extent_of(pixels);
    if (extent.count == 0) {
      pixels.map = nullptr;
      extent = extent_of(pixels);
    }
    const double area = double(extent.count) * placement.area_scale();
    if (area < min_area) continue;
    const int64_t strong = strongest(grids.energy, pixels.patches);
    const double peak = grids.compared[strongest(grids.compared, pixels.patches)];
    const Box box{double(extent.left), double(extent.top), double(extent.right),
                  double(extent.bottom)};
    found_[count_] = {placement.to_picture(box), area, peak, strong / contract_.cols,
                      strong % contract_.cols};
    order_[count_] = int32_t(count_);
    ++count_;
    each(pixels, [&](int64_t x, int64_t y) { outline[y * contract_.width + x] = 1; });
  }
  std::sort(order_.data(), order_.data() + count_, [&](int32_t a, int32_t b) {
    return found_[a].peak != found_[b].peak ? found_[a].peak > found_[b].peak : a < b;
  });
}

// Collects all patches that are connected to the seed, also by corners, and returns how many.
int64_t RegionFinder::flood(int64_t seed) {
  int64_t count = 0;
  const auto take = [&](int64_t patch) {
    if (open_[patch] == 0) return;
    open_[patch] = 0;
    members_[count++] = int32_t(patch);
  };
  take(seed);
  for (int64_t next = 0; next < count; ++next) {
    const int64_t row = members_[next] / contract_.cols, col = members_[next] % contract_.cols;
    for (int64_t r = std::max<int64_t>(row - 1, 0); r < std::min(row + 2, contract_.rows); ++r)
      for (int64_t c = std::max<int64_t>(col - 1, 0); c < std::min(col + 2, contract_.cols); ++c)
        take(r * contract_.cols + c);
  }
  return count;
}

// Returns the strongest patch, the first in the grid if several are equal.
int64_t RegionFinder::strongest(const float* values, int64_t patches) const {
  return *std::max_element(members_.data(), members_.data() + patches, [&](int32_t a, int32_t b) {
    return values[a] != values[b] ? values[a] < values[b] : a > b;
  });
}

void RegionFinder::Extent::add(int64_t x, int64_t y) {
  left = count == 0 ? x : std::min(left, x);
  top = count == 0 ? y : std::min(top, y);
  right = std::max(right, x + 1);
  bottom = std::max(bottom, y + 1);
  ++count;
}

RegionFinder::Extent RegionFinder::extent_of(const Pixels& pixels) const {
  Extent extent;
  each(pixels, [&](int64_t x, int64_t y) { extent.add(x, y); });
  return extent;
}

template <class Work>
void RegionFinder::each(const Pixels& pixels, Work&& work) const {
  const int64_t s = contract_.stride;
  for (int64_t i = 0; i < pixels.patches; ++i) {
    if (pixels.map == nullptr && seed_[members_[i]] == 0) continue;
    const int64_t left = members_[i] % contract_.cols * s, top = members_[i] / contract_.cols * s;
    for (int64_t y = top; y < top + s; ++y)
      for (int64_t x = left; x < left + s; ++x)
        if (pixels.map == nullptr || pixels.map[y * contract_.width + x] > pixels.level) work(x, y);
  }
}

}  // namespace anoco
