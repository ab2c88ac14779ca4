#include "gpu/device.hpp"

#include <algorithm>
#include <map>
#include <mutex>

namespace anoco::gpu {
namespace {

CUdevice find_device(int ordinal, int count) {
  if (ordinal < 0 || ordinal >= count)
    fail(ANOCO_NO_BACKEND, "there is no CUDA device " + std::to_string(ordinal) + ": " +
                               std::to_string(count) +
                               " found, counted from 0; name another in options.gpu");
  CUdevice device = 0;
  driver().cuDeviceGet(&device, ordinal);
  return device;
}

int device_count() {
  int count = 0;
  driver().cuDeviceGetCount(&count);
  return count;
}

int capability_of(CUdevice device) {
  int major = 0, minor = 0;
  driver().cuDeviceGetAttribute(&major, kCapabilityMajor, device);
  driver().cuDeviceGetAttribute(&minor, kCapabilityMinor, device);
  return 10 * major + minor;
}

std::string dotted(int tenths) {
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

// Returns 0 for code that does not run on the device; among others the largest value is the best.
int fitness(const DeviceCode& code, int capability, int driver_version) {
  if (code.capability > capability) return 0;
  // A driver translates PTX up to its own minor version, and loads binaries of its whole major one.
  if (code.ptx) return code.cuda_version > driver_version ? 0 : code.capability;
  if (code.cuda_version / 1000 > driver_version / 1000) return 0;
  // Devices of a family run binaries of its older members.
  return code.capability / 10 == capability / 10 ? 1000 + code.capability : 0;
}

// The devices that are in use. It is never destroyed, see driver.cpp.
struct OpenDevices {
  std::mutex mutex;
  std::map<int, std::weak_ptr<const Device>> devices;
};

OpenDevices& open_devices() {
  static OpenDevices* const only = new OpenDevices;
  return *only;
}

}  // namespace

void use_blocking_sync(int ordinal) {
  static std::mutex* const setting = new std::mutex;
  const DeviceChange change;
  const std::lock_guard<std::mutex> lock(*setting);
  const CUdevice device = find_device(ordinal, device_count());
  unsigned flags = 0;
  int active = 0;
  driver().cuDevicePrimaryCtxGetState(device, &flags, &active);
  // Somebody else in the process may have set it already, and uses the device since.
  if ((flags & kScheduling) == kScheduleBlockingSync) return;
  const unsigned others = flags & ~kScheduling;
  driver().cuDevicePrimaryCtxSetFlags_v2(device, others | kScheduleBlockingSync);
}

DeviceInfo describe_device(int ordinal) {
  DeviceInfo info;
  info.count = device_count();
  const CUdevice device = find_device(ordinal, info.count);
  char name[128] = "";
  driver().cuDeviceGetName(name, int(sizeof name), device);
  name[sizeof name - 1] = 0;
  info.name = name;
  info.capability = capability_of(device);
  driver().cuDeviceTotalMem_v2(&info.memory, device);
  return info;
}

const DeviceCode* choose_code(std::pair<const DeviceCode*, size_t> codes, int capability,
                              int driver_version) {
  const DeviceCode* best = nullptr;
  int most = 0;
  for (const DeviceCode* code = codes.first; code != codes.first + codes.second; ++code) {
    const int fit = fitness(*code, capability, driver_version);
    if (fit > most) {
      most = fit;
      best = code;
    }
  }
  return best;
}

const DeviceCode* choose_code(int capability) {
  const auto codes = device_codes();
  const DeviceCode* code = choose_code(codes, capability, driver().version);
  if (code != nullptr || driver().simulated) return code;
  if (codes.second == 0)
    fail(ANOCO_NO_BACKEND,
         "this library was built without CUDA: build it where nvcc or NVRTC is installed");
  fail(ANOCO_NO_BACKEND, "this library has no code for a device of compute capability " +
                             dotted(capability) + " with a driver for CUDA " +
                             dotted(driver().version / 100) +
                             ": update the driver, or build the library for it");
}

std::shared_ptr<const Device> Device::open(int ordinal) {
  OpenDevices& all = open_devices();
  // Before the lock: who holds a change never waits for somebody who waits for one.
  const DeviceChange change;
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::weak_ptr<const Device>& known = all.devices[ordinal];
  if (auto device = known.lock()) return device;
  std::shared_ptr<const Device> made(new Device(ordinal));
  known = made;
  return made;
}

Device::Device(int ordinal) : ordinal_(ordinal), capability_(0) {
  device_ = find_device(ordinal, device_count());
  capability_ = capability_of(device_);
  driver().cuDevicePrimaryCtxRetain(&context_, device_);
  try {
    load_kernels();
  } catch (...) {
    if (module_ != nullptr)
      release_on_device(*this, [&] { driver().cuModuleUnload.unchecked(module_); });
    driver().cuDevicePrimaryCtxRelease_v2.unchecked(device_);
    throw;
  }
}

Device::~Device() {
  const DeviceChange change;
  release_on_device(*this, [&] { driver().cuModuleUnload.unchecked(module_); });
  driver().cuDevicePrimaryCtxRelease_v2.unchecked(device_);
}

void Device::load_kernels() {
  static const char kAnything[] = "// run by name";
  const DeviceCode* code = choose_code(capability_);
  const CurrentDevice current(*this);
  driver().cuModuleLoadData(&module_, code != nullptr ? static_cast<const void*>(code->data)
                                                      : static_cast<const void*>(kAnything));
  kernels_.for_each([&](auto& kernel) { kernel.bind(driver(), module_); });
}

}  // namespace anoco::gpu
