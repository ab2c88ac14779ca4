// One NVIDIA device: its primary context, and our kernels loaded into it.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "gpu/capture_rule.hpp"
#include "gpu/device_code.hpp"
#include "gpu/kernels.hpp"

namespace anoco::gpu {

// Lets threads that wait for a device sleep, from now on in the whole process. Call it before the
// device is opened: a context that somebody else uses already may refuse it (a Failure).
void use_blocking_sync(int ordinal);

struct DeviceInfo {
  std::string name;
  int count = 0;       // of devices
  int capability = 0;  // 87 is 8.7
  size_t memory = 0;
};

// A device that does not exist is a Failure (ANOCO_NO_BACKEND).
DeviceInfo describe_device(int ordinal);

// Returns the code that runs on a device: its own, else that of the nearest older device of its
// family, else PTX, which the driver compiles. Code of a newer CUDA major version than the driver's
// does not load. Returns NULL if there is none.
const DeviceCode* choose_code(std::pair<const DeviceCode*, size_t> codes, int capability,
                              int driver_version);
// Fails (ANOCO_NO_BACKEND) and says what is missing. Returns NULL for the simulated driver, which
// runs any code.
const DeviceCode* choose_code(int capability);

class Device {
 public:
  // Returns the same object to all callers while somebody holds it.
  static std::shared_ptr<const Device> open(int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const { return ordinal_; }
  int capability() const { return capability_; }
  const Kernels& kernels() const { return kernels_; }
  // Records a sticky error of the device: nothing more is tried on it.
  void lose(CUresult code) const { lost_ = code; }

 private:
  friend class CurrentDevice;
  template <class Work>
  friend void run_on_device(const Device& device, Work&& work) noexcept;
  explicit Device(int ordinal);
  void load_kernels();

  int ordinal_, capability_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  Kernels kernels_;
  mutable std::atomic<CUresult> lost_{kSuccess};
};

using SharedDevice = std::shared_ptr<const Device>;

// Makes a device's context current in this thread while it is in scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(const Device& device) {
    if (const CUresult code = device.lost_) fail_driver_call("cuCtxPushCurrent_v2", code);
    driver().cuCtxPushCurrent_v2(device.context_);
  }
  ~CurrentDevice() {
    CUcontext popped;
    driver().cuCtxPopCurrent_v2.unchecked(&popped);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
};

// Runs code of a destructor in the device's context, if the context can still be entered.
template <class Work>
void run_on_device(const Device& device, Work&& work) noexcept {
  const Driver& calls = driver();
  // A second try is worth it, because what is not freed here stays until the context is destroyed.
  if (calls.cuCtxPushCurrent_v2.unchecked(device.context_) != kSuccess &&
      calls.cuCtxPushCurrent_v2.unchecked(device.context_) != kSuccess)
    return;
  work();
  CUcontext popped;
  calls.cuCtxPopCurrent_v2.unchecked(&popped);
}

// Does the same with code that frees something, which no capture may meet.
template <class Work>
void release_on_device(const Device& device, Work&& work) noexcept {
  const DeviceChange change;
  run_on_device(device, work);
}

}  // namespace anoco::gpu
