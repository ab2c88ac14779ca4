// All memory that inspecting pictures of one product in one context takes, and the way through it:
// prepare, engine, scorer, views, baseline, map, regions, verdict.
#pragma once

#include <memory>
#include <optional>

#include "buffer.hpp"
#include "detector/canvas.hpp"
#include "detector/loaded_product.hpp"
#include "engine/engine.hpp"
#include "picture/counted.hpp"
#include "picture/map.hpp"
#include "picture/prepare.hpp"
#include "picture/regions.hpp"
#include "picture/views.hpp"
#include "scorer/scorer.hpp"

namespace anoco {

struct ContextSettings {
  int threads = 1;
  int64_t memory = 0;  // of the scorer, in bytes
  bool pin = false;
  int64_t max_width = 0, max_height = 0;  // 0: the size of the references
};

// In milliseconds.
struct StageTimes {
  double preprocess = 0, backbone = 0, scoring = 0, map = 0;
  double total() const { return preprocess + backbone + scoring + map; }
};

class Workspace {
 public:
  Workspace(std::shared_ptr<const LoadedProduct> product, const ContextSettings& settings);
  static int64_t bytes(const LoadedProduct& product, const ContextSettings& settings);

  // Allocates nothing. Throws Failure; what it found before is gone then.
  void inspect(Request& request, const anoco_image& image);
  void enlarge_map(float* out) { preparer_.enlarge(map_.data(), placement_, out); }

  const LoadedProduct& product() const { return *product_; }
  const Placement& placement() const { return placement_; }
  double score() const { return score_; }
  const float* energy() const { return energy_.data(); }
  const float* similarity() const { return similarity_.data(); }
  const int64_t* anchor() const { return anchor_.data(); }
  const uint8_t* counted() const { return counted_.data(); }
  const float* map() const { return map_.data(); }
  const uint8_t* outline() const { return outline_.data(); }
  int64_t region_count() const { return region_count_; }
  const Region& region(int64_t number) const { return regions_[number]; }
  int64_t peak() const { return peak_; }  // the strongest patch
  const StageTimes& times() const { return times_; }

 private:
  // Scores the counted patches; the outputs are grids, anchor and similarity may be null.
  void score_patches(const float* features, const uint8_t* counted, const Outputs& out);
  void average_views(Request& request);
  void take_off_usual();
  void pool_energy();
  void find_regions();
  int64_t patches() const { return product_->canvas().patches(); }

  std::shared_ptr<const LoadedProduct> product_;
  Preparer preparer_;
  Counter counter_;
  Canvas canvas_;
  Scorer scorer_;
  MapMaker map_maker_;
  RegionFinder regions_;
  Buffer<uint8_t> pixels_;  // of the canvas
  Buffer<float> gathered_;  // features of counted patches, where not all count
  Buffer<float> energy_, similarity_, map_;
  Buffer<int64_t> anchor_;
  Buffer<uint8_t> counted_, outline_;
  // With views of the query only:
  std::optional<ViewAverage> average_;
  Buffer<uint8_t> warped_;
  Buffer<float> view_energy_;

  Placement placement_;
  double score_ = 0;
  int64_t peak_ = 0, region_count_ = 0;
  StageTimes times_;
};

}  // namespace anoco
