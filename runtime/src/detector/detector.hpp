// A detector: one engine, one product that can be changed, and the contexts that inspect with them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "anoco_edge.h"
#include "bundle/bundle.hpp"
#include "detector/cpu_precision.hpp"
#include "detector/execution_provider.hpp"
#include "detector/retirement.hpp"
#include "engine/engine.hpp"

namespace anoco {

class Context;

struct DetectorSettings {
  EngineChoice engine;
  std::string provider;  // "cpu" or "cuda"; "": where the engine leaves the features
  std::string product;   // "": the only one
  double threshold = 0;  // above 0: in place of the product's
  bool allow_random = false;
  std::string cpu_precision;   // "": auto
  bool blocking_sync = false;  // threads that wait for the CUDA device sleep
  anoco_log log = nullptr;
  void* log_user = nullptr;
};

class Detector {
 public:
  Detector(std::shared_ptr<const Bundle> bundle, const DetectorSettings& settings);

  // Reads a product from disk and prepares every context for it. If one of them fails nothing
  // changes.
  void select(const std::string& name);

  std::shared_ptr<const Bundle> bundle() const { return bundle_; }
  std::shared_ptr<const Engine> engine() const { return engine_; }
  std::shared_ptr<const LoadedProduct> product() const;  // a Failure if none is selected
  const ExecutionProvider& execution_provider() const { return *execution_provider_; }
  const PrecisionChoice& precision() const { return precision_; }
  const Choice& backend() const { return backend_; }
  const Choice& provider() const { return provider_; }
  void log(int32_t level, const std::string& text) const;

 private:
  friend class Context;
  // Contexts call both. The contexts that are registered are prepared when the product changes.
  std::unique_ptr<Workspace> add(Context& context);
  void remove(Context& context);
  std::shared_ptr<const LoadedProduct> load(const std::string& name) const;
  void choose_backend();
  std::shared_ptr<const Engine> make_engine(const EngineChoice& choice) const;
  void open_engine(bool bf16);  // a Failure if the engine does not pass the self-test
  void warn_of_mismatch(const LoadedProduct& product) const;
  const std::shared_ptr<const LoadedProduct>& selected() const;  // with the lock held

  std::shared_ptr<const Bundle> bundle_;
  DetectorSettings settings_;
  PrecisionChoice precision_;
  Choice backend_, provider_;
  std::shared_ptr<const Engine> engine_;
  std::unique_ptr<const ExecutionProvider> execution_provider_;
  mutable std::mutex changing_;
  // Guarded by changing_:
  std::shared_ptr<const LoadedProduct> product_;
  std::vector<Context*> contexts_;
};

// The memory and state with which one thread inspects.
class Context {
 public:
  Context(std::shared_ptr<Detector> detector, const ContextSettings& settings);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Calls work(workspace) with the result in it. Concurrent calls wait for each other.
  template <class Work>
  void inspect(const anoco_image& image, Work&& work) {
    const std::lock_guard<std::mutex> lock(working_);
    take_next();
    has_result_ = false;
    current_->inspect(image);
    has_result_ = true;
    work(*current_);
  }

  // Does the same with the last result; if there is none it throws a Failure.
  template <class Work>
  void with_result(Work&& work) {
    const std::lock_guard<std::mutex> lock(working_);
    check_result();
    work(*current_);
  }

  gpu::GraphCounts graph_counts() {
    const std::lock_guard<std::mutex> lock(working_);
    return session_->graph_counts();
  }

 private:
  friend class Detector;
  // Called when the product has changed: the next inspection uses this workspace.
  void prepare(std::unique_ptr<Workspace> workspace) noexcept;
  void take_next();
  void check_result() const;

  std::shared_ptr<Detector> detector_;
  ContextSettings settings_;
  std::unique_ptr<Session> session_;  // used by the workspaces
  std::mutex working_;
  std::unique_ptr<Workspace> current_;  // guarded by working_
  bool has_result_ = false;             // likewise
  std::mutex swapping_;
  std::unique_ptr<Workspace> next_;  // guarded by swapping_: waits for the next inspection
  Retirement retirement_;            // of the one before
};

}  // namespace anoco
