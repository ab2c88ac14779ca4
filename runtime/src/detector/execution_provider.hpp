// An execution provider runs everything but the backbone, on the CPU or on an NVIDIA device. This
// is the only place that knows both.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "detector/choice.hpp"
#include "detector/workspace.hpp"
#include "engine/engine.hpp"
#include "gpu/graph_counts.hpp"

namespace anoco {

using Log = std::function<void(int32_t level, const std::string& text)>;

// A session belongs to one context. It outlives changes of the product and makes the workspaces.
class Session {
 public:
  virtual ~Session() = default;
  // May be called while an earlier workspace is inspecting.
  virtual std::unique_ptr<Workspace> prepare(std::shared_ptr<const LoadedProduct> product,
                                             const ContextSettings& settings) = 0;
  // Not while a workspace inspects.
  virtual gpu::GraphCounts graph_counts() const { return {}; }
};

class ExecutionProvider {
 public:
  virtual ~ExecutionProvider() = default;
  virtual std::unique_ptr<Session> open_session(const Log& log) const = 0;
  // Returns the bytes that the session and one workspace take.
  virtual int64_t bytes(const LoadedProduct& product, const ContextSettings& settings) const = 0;
  // Checks, as a part of the self-test, that it computes what the CPU computes (ANOCO_PARITY).
  virtual void check_path(const Bundle&, const Log&) const {}
};

struct ExecutionOptions {
  std::string provider;  // "cpu" or "cuda"
  uint32_t gpu = 0;
  bool half = false;  // on a device patches are multiplied as FP16
  InputContract window;
};

// Tells whether a device multiplies the patches of a graph of this precision as FP16: the features
// of an FP16 or INT8 graph have no more digits than that. BF16 has a larger range, FP32 more
// digits.
inline bool multiplies_in_half(const std::string& precision) {
  return precision == "fp16" || precision == "int8";
}

// Chooses "cpu" or "cuda"; `asked` is one of them, or empty. Anything else is a Failure.
Choice choose_provider(const Engine& engine, const std::string& asked);

// Opens the provider of that name.
std::unique_ptr<const ExecutionProvider> open_execution_provider(
    std::shared_ptr<const Engine> engine, const ExecutionOptions& choice);

}  // namespace anoco
