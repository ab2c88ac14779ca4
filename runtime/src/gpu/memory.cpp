#include "gpu/memory.hpp"

namespace anoco::gpu {

void check_on_device(const Device& device, const void* pointer, const std::string& name) {
  unsigned kind = 0;
  int ordinal = -1;
  const CUdeviceptr address = address_of(pointer);
  const bool known =
      driver().cuPointerGetAttribute.quietly(&kind, kPointerMemoryType, address) == kSuccess &&
      driver().cuPointerGetAttribute.quietly(&ordinal, kPointerDeviceOrdinal, address) == kSuccess;
  if (!known || kind != kMemoryDevice)
    fail(ANOCO_INVALID_ARGUMENT, name + " does not lead to memory of a CUDA device");
  if (ordinal != device.ordinal())
    fail(ANOCO_INVALID_ARGUMENT, name + " leads to memory of CUDA device " +
                                     std::to_string(ordinal) + ", the scorer uses device " +
                                     std::to_string(device.ordinal()));
}

}  // namespace anoco::gpu
