#include "backends/tensorrt/fingerprint.hpp"

#include "gpu/device.hpp"

namespace anoco {

PlanFingerprint fingerprint_of(int ordinal, const std::string& version) {
  const gpu::DeviceInfo device = gpu::describe_device(ordinal);
  const std::string module = kernel_driver_version();
  return {version, device.name, "sm" + std::to_string(device.capability),
          "cuda " + std::to_string(gpu::driver().version) + (module.empty() ? "" : " " + module)};
}

}  // namespace anoco
