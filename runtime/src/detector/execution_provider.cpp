#include "detector/execution_provider.hpp"

#include "detector/host_workspace.hpp"
#include "failure.hpp"
#include "gpu/execution_provider.hpp"

namespace anoco {
namespace {

class HostLane : public Lane {
 public:
  explicit HostLane(std::shared_ptr<const Engine> engine) : request_(std::move(engine)) {}

  std::unique_ptr<Workspace> prepare(std::shared_ptr<const LoadedProduct> product,
                                     const ContextSettings& settings) override {
    return std::make_unique<HostWorkspace>(request_, std::move(product), settings);
  }

 private:
  Request request_;
};

class HostRoad : public Road {
 public:
  explicit HostRoad(std::shared_ptr<const Engine> engine) : engine_(std::move(engine)) {}

  std::unique_ptr<Lane> open_lane(const Log&) const override {
    return std::make_unique<HostLane>(engine_);
  }
  int64_t bytes(const LoadedProduct& product, const ContextSettings& settings) const override {
    return HostWorkspace::bytes(product, settings);
  }

 private:
  std::shared_ptr<const Engine> engine_;
};

}  // namespace

std::unique_ptr<const Road> open_road(std::shared_ptr<const Engine> engine,
                                      const RoadChoice& choice) {
  if (choice.scorer != "" && choice.scorer != "cpu" && choice.scorer != "cuda")
    fail(ANOCO_INVALID_ARGUMENT, "scorer is '" + choice.scorer + "': use \"cpu\" or \"cuda\"");
  const bool device = choice.scorer.empty() ? engine->cuda_device() >= 0 : choice.scorer == "cuda";
  if (device) return gpu::open_road(std::move(engine), choice);
  return std::make_unique<HostRoad>(std::move(engine));
}

}  // namespace anoco
