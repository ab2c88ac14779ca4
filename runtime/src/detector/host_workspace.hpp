// Inspects on the CPU: preprocessing, engine, scorer, augmentation, baseline and anomaly map. It
// allocates nothing after it is made.
#pragma once

#include <optional>

#include "detector/tiling.hpp"
#include "detector/workspace.hpp"
#include "engine/engine.hpp"
#include "picture/anomaly_map.hpp"
#include "picture/augmentation.hpp"
#include "picture/patch_mask.hpp"
#include "scorer/scorer.hpp"

namespace anoco {

class HostWorkspace : public Workspace {
 public:
  HostWorkspace(Request& request, std::shared_ptr<const LoadedProduct> product,
                const ContextSettings& settings);
  static int64_t bytes(const LoadedProduct& product, const ContextSettings& settings);

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(const LoadedProduct& product, const ContextSettings& settings,
                          Each&& each);
  Findings compute(const anoco_image& image, StageTimes& times) override;
  // Scores the patches of the mask. The outputs are grids; anchor and similarity may be null.
  void score_patches(const float* features, const uint8_t* scored, const Outputs& out);
  void average_views(const Placement& placement, StageTimes& times);
  void subtract_baseline();
  void pool_energy(Findings& found);

  Request& request_;
  PatchMask patch_mask_;
  Tiling tiling_;
  std::optional<Scorer> scorer_;  // cannot be moved
  AnomalyMapBuilder map_builder_;
  Buffer<uint8_t> pixels_;  // of the tiled input
  Buffer<float> gathered_;  // features of the scored patches, where not all are
  Buffer<float> energy_, similarity_, map_;
  Buffer<float> smoothed_;  // energies, with pooling `smooth` only
  Buffer<int64_t> anchor_;
  Buffer<uint8_t> scored_;
  // With views of the query only:
  std::optional<ViewAverage> average_;
  Buffer<uint8_t> warped_;
  Buffer<float> view_energy_;
};

}  // namespace anoco
