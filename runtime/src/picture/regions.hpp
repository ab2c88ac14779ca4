// Finds the anomalous regions of a part, as anoco_edge/pipeline/regions.py does.
#pragma once

#include <cstdint>

#include "buffer_list.hpp"
#include "picture/placement.hpp"

namespace anoco {

struct Region {
  Box box;  // in pixels of the picture
  double area = 0;
  double peak = 0;           // the largest value that was compared with the threshold
  int64_t row = 0, col = 0;  // the patch of the largest energy
};

// What regions are found in, as grids. `compared` decides which patches are over the threshold: it
// is `energy`, or the smoothed energies.
struct RegionGrids {
  const float *energy, *compared;
  const float* map;  // at the model's input size
};

class RegionFinder {
 public:
  RegionFinder() = default;
  explicit RegionFinder(const InputContract& contract);
  static int64_t bytes(const InputContract& contract);

  // Finds the regions of at least min_area picture pixels, strongest first, and fills in `outline`,
  // which has one byte per pixel of the map.
  void find(const RegionGrids& grids, double threshold, const Placement& placement, double min_area,
            uint8_t* outline);
  int64_t count() const { return count_; }
  const Region& operator[](int64_t number) const { return found_[order_[number]]; }

 private:
  // The pixels of the current region: those where the map is above `level`. If smoothing has pushed
  // a single hot patch below it everywhere (map is NULL), they are the whole seed patches.
  struct Pixels {
    const float* map;
    float level;
    int64_t patches;  // number of members_ in use
  };
  struct Extent {
    int64_t count = 0, left = 0, top = 0, right = 0, bottom = 0;
    void add(int64_t x, int64_t y);
  };
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(const InputContract& contract, Each&& each);
  int64_t flood(int64_t seed);
  int64_t strongest(const float* values, int64_t patches) const;
  Extent extent_of(const Pixels& pixels) const;
  template <class Work>
  void each(const Pixels& pixels, Work&& work) const;

  InputContract contract_;
  Buffer<uint8_t> seed_;     // 1 for a patch over the threshold
  Buffer<uint8_t> open_;     // 1 for a patch that no region has taken yet
  Buffer<int32_t> members_;  // the patches of the current region
  Buffer<Region> found_;
  Buffer<int32_t> order_;  // indices into `found_`, strongest first
  int64_t count_ = 0;
};

}  // namespace anoco
