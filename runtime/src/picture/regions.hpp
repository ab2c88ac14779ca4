// Where a part is not good, as anoco_edge/regions.py finds it.
#pragma once

#include "buffer.hpp"
#include "picture/placement.hpp"

namespace anoco {

struct Region {
  Box box;  // in pixels of the picture
  double area = 0, peak = 0;
  int64_t row = 0, col = 0;
};

class RegionFinder {
 public:
  explicit RegionFinder(const InputContract& contract);
  static int64_t bytes(const InputContract& contract);

  // Regions of at least min_area picture pixels, strongest first; `outline` (a byte for each pixel
  // of the map) is filled in.
  void find(const float* energy, const float* map, double threshold, const Placement& placement,
            double min_area, uint8_t* outline);
  int64_t count() const;
  const Region& operator[](int64_t number) const;
};

}  // namespace anoco
