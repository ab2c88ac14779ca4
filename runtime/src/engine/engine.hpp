// Runs the backbone through the plug-in interface of anoco_backend.h.
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
  bool bf16 = false;  // compute in BF16 on the processor
};

// Features that an engine left on its CUDA device.
struct DeviceFeatures {
  const void* address = nullptr;
  uint32_t type = 0;  // ANOCO_FLOAT32 or ANOCO_FLOAT16
};

// One loaded backbone, which contexts share. Its failures are ANOCO_NO_BACKEND, ANOCO_BAD_BUNDLE
// and ANOCO_ENGINE.
class Engine {
 public:
  // `identity` is the name that plans of the graph are filed under, see anoco_model.
  Engine(const EngineChoice& choice, const std::string& graph, const InputContract& input,
         const std::string& identity = "");
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const anoco_backend& backend() const { return backend_; }
  void* handle() const { return handle_; }
  const std::string& label() const { return label_; }  // as in "openvino on CPU", for messages
  bool bf16() const { return bf16_; }
  // Returns the CUDA device that pixels and features can stay on, or -1.
  int cuda_device() const;

 private:
  anoco_backend backend_;
  std::string label_;
  bool bf16_ = false;
  void* handle_ = nullptr;
};

// An inference request, of which each context has its own.
class Request {
 public:
  explicit Request(std::shared_ptr<const Engine> engine);
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Returns patches x dim floats in the request's own memory, valid until the next run. The library
  // allocates nothing here.
  const float* run(const uint8_t* pixels);
  // Does the same on the engine's CUDA device, which must be current. The work is enqueued on
  // `stream`, a CUstream.
  DeviceFeatures run_device(const void* pixels, void* stream);

  const Engine& engine() const { return *engine_; }

 private:
  std::shared_ptr<const Engine> engine_;
  void* handle_ = nullptr;
  bool ran_ = false;  // its first run loads kernels
};

// The registry holds the built-in backends and those that callers registered.
void register_backend(const anoco_backend& backend);
anoco_backend find_backend(const std::string& name);  // an unknown name: ANOCO_NO_BACKEND

}  // namespace anoco
