// Inspects on a device: the picture is copied to it, everything but the regions is computed there,
// and grids and map are copied back. The engine is one CUDA graph and everything after it is
// another, which is captured once for each number of scored patches.
#pragma once

#include <map>
#include <optional>

#include "detector/tiling.hpp"
#include "detector/workspace.hpp"
#include "gpu/anomaly_map.hpp"
#include "gpu/engine_session.hpp"
#include "gpu/graph_maker.hpp"
#include "gpu/preparer.hpp"
#include "gpu/scorer.hpp"
#include "picture/augmentation.hpp"
#include "picture/patch_mask.hpp"

namespace anoco::gpu {

class DeviceWorkspace : public Workspace {
 public:
  DeviceWorkspace(EngineSession& engine, std::shared_ptr<const DeviceBank> bank,
                  std::shared_ptr<const LoadedProduct> product, const ContextSettings& settings);
  // Takes all memory on the device and on the host, for features of a type that the engine gives.
  static int64_t bytes(const Device& device, const LoadedProduct& product,
                       const ContextSettings& settings, Operands features, Factors factors,
                       ProductPath path);

 private:
  enum class Part { scores, map, both };  // of the work after the engine

  // The one list of its memory, see buffer_list.hpp. `bank` is the bank on the device, or only its
  // shape where memory is counted.
  template <class BankOrShape, class Each>
  static void each_buffer(const Device& device, const LoadedProduct& product,
                          const ContextSettings& settings, Operands features, Operands operands,
                          const BankOrShape& bank, Each&& each);
  Findings compute(const anoco_image& image, StageTimes& times) override;
  // Runs the engine over the whole input or its tiles, from pixels_ to features_.
  void run_engine();
  void run_tile(const TilePlace& place);
  void launch(Part part);
  void enqueue(Part part);
  void enqueue_scores();
  Patches query() const;  // what is scored: features, gathered and converted if needed
  void check_scores();
  void keep_identity();
  void average_views(const Placement& placement, StageTimes& times);
  void run_part(const uint8_t* scored, Part part);

  SharedDevice device_;
  EngineSession& engine_;
  std::vector<TilePlace> tiles_;
  PatchMask patch_mask_;
  DevicePreparer device_preparer_;
  Selection selection_;
  std::optional<DeviceScorer> scorer_;  // cannot be moved
  DeviceAnomalyMap map_;
  DeviceBuffer<uint8_t> tiled_pixels_, joined_;  // with tiles
  DeviceBuffer<uint8_t> gathered_,
      converted_;  // features of the scored patches; converted to operands
  DeviceBuffer<float> energy_grid_, similarity_grid_;
  DeviceBuffer<int> anchor_grid_;
  PinnedBuffer<float> host_similarity_;
  PinnedBuffer<int> host_anchor_, host_bad_row_;
  Buffer<float> similarity_;
  Buffer<int64_t> anchor_;
  Buffer<uint8_t> scored_;
  CUdeviceptr pixels_ = 0;  // of the tiled input
  Patches features_;
  // With views of the query only:
  std::optional<ViewAverage> average_;
  PinnedBuffer<uint8_t> host_pixels_, warped_;
  GraphMaker graph_maker_;
  std::map<std::pair<Part, int64_t>, RepeatedWork> work_;  // by the number of scored patches
  Event begun_, prepared_, seen_, done_;
  Stream stream_;
};

}  // namespace anoco::gpu
