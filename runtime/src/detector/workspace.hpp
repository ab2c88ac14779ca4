// A workspace holds all memory for inspecting pictures of one product, and the last result. On the
// CPU it is a HostWorkspace, on an NVIDIA device a gpu::DeviceWorkspace; execution_provider.hpp
// chooses.
#pragma once

#include <chrono>
#include <memory>

#include "buffer_list.hpp"
#include "detector/loaded_product.hpp"
#include "picture/prepare.hpp"
#include "picture/regions.hpp"
#include "scorer/layout.hpp"

namespace anoco {

struct ContextSettings {
  int threads = 1;
  uint32_t memory_mb = 0;  // of the scorer, in millions of bytes; 0: its default
  bool pin = false;
  int64_t max_width = 0, max_height = 0;  // 0: the size of the references
};

// Times in milliseconds.
struct StageTimes {
  double preprocess = 0, backbone = 0, scoring = 0, map = 0;
  double total() const { return preprocess + backbone + scoring + map; }
};

// Adds the milliseconds from its construction to its destruction to a sum.
class StageTimer {
 public:
  explicit StageTimer(double& sum) : sum_(sum) {}
  ~StageTimer() {
    sum_ += std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  double& sum_;
  Clock::time_point start_ = Clock::now();
};

struct PictureSize {
  int64_t width, height;
};

PictureSize largest_picture(const LoadedProduct& product, const ContextSettings& settings);
bool has_query_views(const LoadedProduct& product);
// Tells whether there can be pictures of which not every patch is scored.
bool gathers(const LoadedProduct& product);
Settings scorer_settings(const LoadedProduct& product, const ContextSettings& context,
                         int64_t memory);

class Workspace {
 public:
  virtual ~Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Throws a Failure; the previous result is then lost.
  void inspect(const anoco_image& image);
  void enlarge_map(float* out) { preparer_.enlarge(found_.map, found_.placement, out); }

  const LoadedProduct& product() const { return *product_; }
  const Placement& placement() const { return found_.placement; }
  double score() const { return found_.score; }
  const float* energy() const { return found_.energy; }
  const float* similarity() const { return found_.similarity; }
  const int64_t* anchor() const { return found_.anchor; }
  const uint8_t* scored() const { return found_.scored; }
  const float* map() const { return found_.map; }
  const uint8_t* outline() const { return outline_.data(); }
  int64_t region_count() const { return region_count_; }
  const Region& region(int64_t number) const { return regions_[number]; }
  int64_t peak() const { return found_.peak; }  // the strongest patch
  const StageTimes& times() const { return times_; }

 protected:
  // The result of an inspection. The pointers lead into the workspace's own memory.
  struct Findings {
    Placement placement;
    double score = 0;
    int64_t peak = 0;
    const float *energy = nullptr, *similarity = nullptr, *map = nullptr;
    const float* compared = nullptr;  // with the threshold: the energies, or the smoothed ones
    const int64_t* anchor = nullptr;
    const uint8_t* scored = nullptr;
  };

  Workspace(std::shared_ptr<const LoadedProduct> product, const ContextSettings& settings);
  static int64_t bytes(const LoadedProduct& product, const ContextSettings& settings);

  // Computes everything from the picture to the map, and adds the time of each stage to `times`.
  virtual Findings compute(const anoco_image& image, StageTimes& times) = 0;

  const InputContract& input() const { return product_->input(); }
  int64_t patches() const { return input().patches(); }
  int64_t pixels() const { return input().width * input().height; }

  std::shared_ptr<const LoadedProduct> product_;
  Preparer preparer_;

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(const LoadedProduct& product, const ContextSettings& settings,
                          Each&& each);
  void find_regions();

  RegionFinder regions_;
  Buffer<uint8_t> outline_;
  Findings found_;
  int64_t region_count_ = 0;
  StageTimes times_;
};

}  // namespace anoco
