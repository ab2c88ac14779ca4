// Where everything but the backbone is computed: on the CPU, or on an NVIDIA device. The one place
// that knows there are two.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "detector/workspace.hpp"
#include "engine/engine.hpp"

namespace anoco {

using Log = std::function<void(int32_t level, const std::string& text)>;

// What a context keeps while products change, and makes workspaces with.
class Session {
 public:
  virtual ~Session() = default;
  // May be called while an earlier workspace inspects.
  virtual std::unique_ptr<Workspace> prepare(std::shared_ptr<const LoadedProduct> product,
                                             const ContextSettings& settings) = 0;
};

class ExecutionProvider {
 public:
  virtual ~ExecutionProvider() = default;
  virtual std::unique_ptr<Session> open_session(const Log& log) const = 0;
  // That a workspace takes.
  virtual int64_t bytes(const LoadedProduct& product, const ContextSettings& settings) const = 0;
};

struct ExecutionOptions {
  std::string provider;  // "cpu", "cuda", "": where the features are
  uint32_t gpu = 0;
  bool half = false;  // the backbone computes in FP16
  InputContract window;
};

std::unique_ptr<const ExecutionProvider> open_execution_provider(
    std::shared_ptr<const Engine> engine, const ExecutionOptions& choice);

}  // namespace anoco
