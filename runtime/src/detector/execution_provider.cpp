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

std::unique_ptr<const ExecutionProvider> open_execution_provider(
    std::shared_ptr<const Engine> engine, const ExecutionOptions& choice) {
  if (choice.provider != "" && choice.provider != "cpu" && choice.provider != "cuda")
    fail(ANOCO_INVALID_ARGUMENT, "scorer is '" + choice.provider + "': use \"cpu\" or \"cuda\"");
  const bool device =
      choice.provider.empty() ? engine->cuda_device() >= 0 : choice.provider == "cuda";
  if (device) return gpu::open_execution_provider(std::move(engine), choice);
  return std::make_unique<HostExecutionProvider>(std::move(engine));
}

}  // namespace anoco
