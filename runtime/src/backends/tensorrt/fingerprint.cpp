#include "backends/tensorrt/fingerprint.hpp"

#include "gpu/device.hpp"

namespace anoco {
namespace {

constexpr int kMultiprocessorCount = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT

// Devices of one name differ in size: every Orin calls itself Orin. As Device.label in
// anoco_edge/plans/device.py has it.
std::string label(int ordinal, const gpu::DeviceInfo& device) {
  gpu::CUdevice handle = 0;
  int processors = 0;
  gpu::driver().cuDeviceGet(&handle, ordinal);
  gpu::driver().cuDeviceGetAttribute(&processors, kMultiprocessorCount, handle);
  const size_t gigabytes = (device.memory + (size_t{1} << 29)) >> 30;
  return device.name + " (" + std::to_string(processors) + " SMs, " + std::to_string(gigabytes) +
         " GB)";
}

}  // namespace

PlanFingerprint fingerprint_of(int ordinal, const std::string& version) {
  const gpu::DeviceInfo device = gpu::describe_device(ordinal);
  const std::string module = kernel_driver_version();
  return {version, label(ordinal, device), "sm" + std::to_string(device.capability),
          "cuda " + std::to_string(gpu::driver().version) + (module.empty() ? "" : " " + module)};
}

}  // namespace anoco
