// The backbone behind the plug-in interface of anoco_backend.h.
#pragma once

#include <memory>
#include <string>

#include "anoco_backend.h"
#include "bundle/schema.hpp"

namespace anoco {

struct EngineChoice {
  std::string backend = "openvino";
  std::string device, library;  // empty: the backend's choice
  uint32_t threads = 0;
  uint32_t gpu = 0;
};

// Features that an engine left on its CUDA device.
struct DeviceFeatures {
  const void* address = nullptr;
  uint32_t type = 0;  // ANOCO_FLOAT32 or ANOCO_FLOAT16
};

// One loaded backbone, shared by contexts. Failures: ANOCO_NO_BACKEND, ANOCO_BAD_BUNDLE,
// ANOCO_ENGINE.
class Engine {
 public:
  // `identity` is what plans of the graph are filed under, see anoco_model.
  Engine(const EngineChoice& choice, const std::string& graph, const InputContract& input,
         const std::string& identity = "");
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const anoco_backend& backend() const { return backend_; }
  void* handle() const { return handle_; }
  const std::string& label() const { return label_; }  // as in "openvino on CPU", for messages
  // The CUDA device that pixels and features can stay on; -1: none.
  int cuda_device() const;

 private:
  anoco_backend backend_;
  std::string label_;
  void* handle_ = nullptr;
};

// What one context runs.
class Request {
 public:
  explicit Request(std::shared_ptr<const Engine> engine);
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // patches x dim floats, the request's own memory until the next run. Allocates nothing of ours.
  const float* run(const uint8_t* pixels);
  // The same on the engine's CUDA device, which must be current: enqueued on `stream`, a CUstream.
  DeviceFeatures run_device(const void* pixels, void* stream);

  const Engine& engine() const { return *engine_; }

 private:
  std::shared_ptr<const Engine> engine_;
  void* handle_ = nullptr;
};

// The registry: the backends built in, and those that callers registered.
void register_backend(const anoco_backend& backend);
anoco_backend find_backend(const std::string& name);  // an unknown name: ANOCO_NO_BACKEND

}  // namespace anoco
