#include "detector/execution_provider.hpp"

#include "detector/host_workspace.hpp"
#include "failure.hpp"
#include "gpu/execution_provider.hpp"

namespace anoco {
namespace {

class HostSession : public Session {
 public:
  explicit HostSession(std::shared_ptr<const Engine> engine) : request_(std::move(engine)) {}

  std::unique_ptr<Workspace> prepare(std::shared_ptr<const LoadedProduct> product,
                                     const ContextSettings& settings) override {
    return std::make_unique<HostWorkspace>(request_, std::move(product), settings);
  }

 private:
  Request request_;
};

class HostExecutionProvider : public ExecutionProvider {
 public:
  explicit HostExecutionProvider(std::shared_ptr<const Engine> engine)
      : engine_(std::move(engine)) {}

  std::unique_ptr<Session> open_session(const Log&) const override {
    return std::make_unique<HostSession>(engine_);
  }
  int64_t bytes(const LoadedProduct& product, const ContextSettings& settings) const override {
    return HostWorkspace::bytes(product, settings);
  }

 private:
  std::shared_ptr<const Engine> engine_;
};

}  // namespace

Choice choose_provider(const Engine& engine, const std::string& asked) {
  const int device = engine.cuda_device();
  const std::string there = device < 0 ? "" : "CUDA device " + std::to_string(device);
  if (asked == "cuda") return {asked, "asked for"};
  if (asked == "cpu" && device < 0) return {asked, "asked for"};
  if (asked == "cpu") return {asked, "asked for, so features are copied from " + there};
  if (!asked.empty())
    fail(ANOCO_INVALID_ARGUMENT, "scorer is '" + asked + "': use \"cpu\" or \"cuda\"");
  if (device < 0) return {"cpu", "the engine leaves the features on the host"};
  return {"cuda", "the engine leaves the features on " + there};
}

std::unique_ptr<const ExecutionProvider> open_execution_provider(
    std::shared_ptr<const Engine> engine, const ExecutionOptions& choice) {
  if (choice.provider == "cuda") return gpu::open_execution_provider(std::move(engine), choice);
  return std::make_unique<HostExecutionProvider>(std::move(engine));
}

}  // namespace anoco
