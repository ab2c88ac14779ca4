// An execution provider runs everything but the backbone, on the CPU or on an NVIDIA device. This
// is the only place that knows both.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "detector/workspace.hpp"
#include "engine/engine.hpp"

namespace anoco {

using Log = std::function<void(int32_t level, const std::string& text)>;

// A session belongs to one context. It outlives changes of the product and makes the workspaces.
class Session {
 public:
  virtual ~Session() = default;
  // May be called while an earlier workspace is inspecting.
  virtual std::unique_ptr<Workspace> prepare(std::shared_ptr<const LoadedProduct> product,
                                             const ContextSettings& settings) = 0;
};

class ExecutionProvider {
 public:
  virtual ~ExecutionProvider() = default;
  virtual std::unique_ptr<Session> open_session(const Log& log) const = 0;
  // Returns the bytes that the session and one workspace take.
  virtual int64_t bytes(const LoadedProduct& product, const ContextSettings& settings) const = 0;
};

struct ExecutionOptions {
  std::string provider;  // "cpu" or "cuda"; "" runs where the engine leaves the features
  uint32_t gpu = 0;
  bool half = false;  // the backbone computes in FP16
  InputContract window;
};

std::unique_ptr<const ExecutionProvider> open_execution_provider(
    std::shared_ptr<const Engine> engine, const ExecutionOptions& choice);

}  // namespace anoco
