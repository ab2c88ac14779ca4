// The backbone of fake_backend.hpp on the simulated device: pixels and features stay on it, and its
// work is enqueued as that of a real engine is.
#pragma once

#include <atomic>
#include <memory>

#include "gpu/memory.hpp"
#include "simcuda.h"
#include "status_guard.hpp"
#include "teaching/half.hpp"
#include "tests/fake_backend.hpp"

extern "C" int cuStreamIsCapturing(void* stream, int* status);  // of CUDA's driver

namespace fake {

// Its behavior, for the whole program.
struct DeviceBehavior {
  uint32_t type = ANOCO_FLOAT32;
  bool refuses_capture = false;
  bool wrong_in_graphs = false;
  std::atomic<int> runs{0};  // calls of run_device
};

inline DeviceBehavior& behavior() {
  static DeviceBehavior only;
  return only;
}

struct DeviceRequest {
  explicit DeviceRequest(const Engine* from)
      : host{from, std::vector<float>(from->selftest.features.size())},
        device_features(anoco::gpu::Device::open(0), int64_t(host.features.size()) * 4) {}

  Request host;  // for `run`
  anoco::gpu::DeviceBuffer<uint8_t> device_features;
  const uint8_t* pixels = nullptr;
  uint32_t type = ANOCO_FLOAT32;
};

// Runs in the order of the stream, where the memory of the device can be read and written.
inline void compute(void* given) {
  auto* request = static_cast<DeviceRequest*>(given);
  std::vector<float>& features = request->host.features;
  compute_features(*request->host.engine, request->pixels, features.data());
  for (size_t k = 0; k < features.size(); ++k)
    if (request->type == ANOCO_FLOAT16)
      reinterpret_cast<uint16_t*>(request->device_features.data())[k] = anoco::to_half(features[k]);
    else
      reinterpret_cast<float*>(request->device_features.data())[k] = features[k];
}

inline void compute_wrong(void* given) {
  compute(given);
  reinterpret_cast<uint8_t*>(static_cast<DeviceRequest*>(given)->device_features.data())[0] ^= 1;
}

inline anoco_status create_device_request(void* engine, void** request, char* error, size_t size) {
  return anoco::status_guard(
      error, size, [&] { *request = new DeviceRequest(static_cast<const Engine*>(engine)); });
}

inline void destroy_device_request(void* request) { delete static_cast<DeviceRequest*>(request); }

inline anoco_status run_on_host(void* request, const uint8_t* pixels, const float** features,
                                char* error, size_t size) {
  return run(&static_cast<DeviceRequest*>(request)->host, pixels, features, error, size);
}

inline int32_t cuda_device(void*) { return 0; }

inline anoco_status run_device(void* given, const void* pixels, void* stream, const void** features,
                               uint32_t* type, char* error, size_t size) {
  auto* request = static_cast<DeviceRequest*>(given);
  ++behavior().runs;
  int capturing = 0;
  if (cuStreamIsCapturing(stream, &capturing) != 0) capturing = 0;
  if (capturing != 0 && behavior().refuses_capture) {
    std::strncpy(error, "capturing is refused", size - 1);
    return ANOCO_ENGINE;
  }
  request->pixels = static_cast<const uint8_t*>(pixels);
  request->type = behavior().type;
  const bool wrong = capturing != 0 && behavior().wrong_in_graphs;
  if (const int code = simcuda_enqueue(stream, wrong ? compute_wrong : compute, request)) {
    std::snprintf(error, size, "simcuda_enqueue: error %d", code);
    return ANOCO_ENGINE;
  }
  *features = request->device_features.data();
  *type = request->type;
  return ANOCO_OK;
}

// Registers it as "device"; `path` is the bundle and must stay valid.
inline anoco_status add_device(const char* path) {
  anoco_backend backend = describe("device", path);
  backend.create_request = create_device_request;
  backend.destroy_request = destroy_device_request;
  backend.run = run_on_host;
  backend.cuda_device = cuda_device;
  backend.run_device = run_device;
  return anoco_register_backend(&backend);
}

}  // namespace fake
