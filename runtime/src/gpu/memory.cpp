#include "gpu/memory.hpp"

namespace anoco::gpu {
namespace {

// Tells whether a pointer has an attribute. A pointer that does not belong to CUDA has none.
template <class T>
bool ask(T& value, int attribute, CUdeviceptr address) {
  const auto& call = driver().cuPointerGetAttribute;
  const CUresult code = call.unchecked(&value, attribute, address);
  if (code != kSuccess && code != kInvalidValue) fail_driver_call(call.name(), code);
  return code == kSuccess;
}

}  // namespace

CUdeviceptr reachable(const Device& device, const void* pointer, const char* name) {
  unsigned kind = 0, managed = 0;
  int ordinal = -1;
  const CUdeviceptr given = address_of(pointer);
  CUdeviceptr reached = 0;
  const bool known = ask(kind, kPointerMemoryType, given);
  ask(managed, kPointerIsManaged, given);
  if (known && kind == kMemoryDevice && managed == 0 &&
      ask(ordinal, kPointerDeviceOrdinal, given) && ordinal != device.ordinal())
    fail(ANOCO_INVALID_ARGUMENT,
         std::string(name) + " leads to memory of CUDA device " + std::to_string(ordinal) +
             ", the scorer uses device " + std::to_string(device.ordinal()),
         "copy it to that device, or open the scorer on the other");
  if (!known || !ask(reached, kPointerDevicePointer, given))
    fail(ANOCO_INVALID_ARGUMENT,
         std::string(name) +
             " does not lead to memory of a CUDA device, nor to "
             "page-locked or managed memory that it can reach",
         "allocate it with CUDA, or pass it as memory of the host");
  return reached;
}

}  // namespace anoco::gpu
