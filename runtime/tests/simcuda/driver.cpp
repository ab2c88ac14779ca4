// The calls of CUDA's driver, for devices, contexts, modules and memory; copies.cpp has the rest.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "simt.hpp"
#include "world.hpp"

using namespace simcuda;

namespace {

World& world() { return World::get(); }

uintptr_t number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

bool is_device(CUdevice device) { return device >= 0 && device < world().devices; }

}  // namespace

extern "C" {

const int anoco_simulated_driver = 1;

CUresult cuInit(unsigned flags) {
  const Entry entry("cuInit", false);
  if (entry.code() != kSuccess) return entry.code();
  if (flags != 0) misuse("cuInit: flags");
  if (world().devices == 0) return kNoDevice;
  world().started = true;
  return kSuccess;
}

CUresult cuDriverGetVersion(int* version) {
  const Entry entry("cuDriverGetVersion", false);
  if (entry.code() != kSuccess) return entry.code();
  *version = world().driver_version;
  return kSuccess;
}

CUresult cuGetErrorName(CUresult code, const char** name) {
  static const std::pair<CUresult, const char*> names[] = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kNotReady, "CUDA_ERROR_NOT_READY"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
      {kPrimaryContextActive, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"},
      {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
      {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {kUnknown, "CUDA_ERROR_UNKNOWN"},
  };
  for (const auto& [known, text] : names)
    if (known == code) {
      *name = text;
      return kSuccess;
    }
  *name = nullptr;
  return kInvalidValue;
}

CUresult cuDeviceGetCount(int* count) {
  const Entry entry("cuDeviceGetCount", false);
  if (entry.code() != kSuccess) return entry.code();
  if (!world().started) return kNotInitialized;
  *count = world().devices;
  return kSuccess;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const Entry entry("cuDeviceGet", false);
  if (entry.code() != kSuccess) return entry.code();
  if (!world().started) return kNotInitialized;
  if (!is_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  const Entry entry("cuDeviceGetName", false);
  if (entry.code() != kSuccess) return entry.code();
  if (!is_device(device)) return kInvalidDevice;
  std::snprintf(name, size_t(size), "Simulated device");
  return kSuccess;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  const Entry entry("cuDeviceGetAttribute", false);
  if (entry.code() != kSuccess) return entry.code();
  if (!is_device(device)) return kInvalidDevice;
  if (attribute == kCapabilityMajor)
    *value = world().capability / 10;
  else if (attribute == kCapabilityMinor)
    *value = world().capability % 10;
  else if (attribute == 16)  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    *value = 8;
  else
    return kInvalidValue;
  return kSuccess;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  const Entry entry("cuDeviceTotalMem_v2", false);
  if (entry.code() != kSuccess) return entry.code();
  if (!is_device(device)) return kInvalidDevice;
  *bytes = world().memory;
  return kSuccess;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const Entry entry("cuDevicePrimaryCtxRetain", false);
  if (entry.code() != kSuccess) return entry.code();
  if (!world().started) return kNotInitialized;
  if (!is_device(device)) return kInvalidDevice;
  *context = reinterpret_cast<CUcontext>(world().retain(device));
  return kSuccess;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const Entry entry("cuDevicePrimaryCtxRelease_v2", false);
  world().release(device);
  return entry.code();
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  const Entry entry("cuDevicePrimaryCtxSetFlags_v2", false);
  if (entry.code() != kSuccess) return entry.code();
  if (!is_device(device)) return kInvalidDevice;
  if (world().primary(device) != nullptr) return kPrimaryContextActive;
  world().context_flags[device] = flags;
  return kSuccess;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  const Entry entry("cuDevicePrimaryCtxGetState", false);
  if (entry.code() != kSuccess) return entry.code();
  if (!is_device(device)) return kInvalidDevice;
  *flags = world().context_flags[device];
  *active = world().primary(device) != nullptr ? 1 : 0;
  return kSuccess;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  const Entry entry("cuCtxPushCurrent_v2", false);
  if (entry.code() != kSuccess) return entry.code();
  auto* pushed = reinterpret_cast<Context*>(context);
  if (pushed == nullptr || world().primary(pushed->device) != pushed)
    misuse("cuCtxPushCurrent_v2: a context that is gone");
  world().stack().push_back(pushed);
  return kSuccess;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  const Entry entry("cuCtxPopCurrent_v2", false);
  if (world().stack().empty()) misuse("cuCtxPopCurrent_v2: no context is current");
  *context = reinterpret_cast<CUcontext>(world().stack().back());
  world().stack().pop_back();
  return entry.code();
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  const Entry entry("cuCtxGetCurrent", false);
  if (entry.code() != kSuccess) return entry.code();
  *context = reinterpret_cast<CUcontext>(world().current());
  return kSuccess;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  const Entry entry("cuCtxSetCurrent", false);
  if (entry.code() != kSuccess) return entry.code();
  if (!world().stack().empty()) world().stack().pop_back();
  if (context != nullptr) world().stack().push_back(reinterpret_cast<Context*>(context));
  return kSuccess;
}

// Modules: the kernels are those of the emulation, whatever the image is.

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  const Entry entry("cuModuleLoadData");
  if (entry.code() != kSuccess) return entry.code();
  const auto* start = static_cast<const char*>(image);
  const bool elf = std::memcmp(start,
                               "\x7f"
                               "ELF",
                               4) == 0;
  if (!elf && start[0] != '/' && start[0] != '.' && start[0] != '\n') return kInvalidImage;
  if (const CUresult code = entry.synchronize_device()) return code;
  *module = reinterpret_cast<CUmodule>(world().make<Module>(Kind::module, entry.context()));
  return kSuccess;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  const Entry entry("cuModuleGetFunction");
  if (entry.code() != kSuccess) return entry.code();
  auto* module = world().check<Module>(entry.call(), handle, Kind::module);
  if (simt::find(name) == nullptr) return kNotFound;
  auto* made = world().make<Function>(Kind::function, entry.context());
  made->module = module;
  made->name = name;
  *function = reinterpret_cast<CUfunction>(made);
  return kSuccess;
}

CUresult cuModuleUnload(CUmodule handle) {
  const Entry entry("cuModuleUnload");
  if (entry.lost()) return entry.code();
  if (const CUresult code = entry.synchronize_device()) return code;
  world().destroy(world().check<Module>(entry.call(), handle, Kind::module));
  return entry.code();
}

// Memory.

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  const Entry entry("cuMemAlloc_v2");
  if (entry.code() != kSuccess) return entry.code();
  if (const CUresult code = entry.synchronize_device()) return code;
  if (bytes == 0) return kInvalidValue;
  const uintptr_t made = world().allocate(entry.context(), bytes, World::Place::device);
  if (made == 0) return kOutOfMemory;
  *address = made;
  return kSuccess;
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  const Entry entry("cuMemAllocManaged");
  if (entry.code() != kSuccess) return entry.code();
  if (const CUresult code = entry.synchronize_device()) return code;
  if (bytes == 0 || flags != 1) return kInvalidValue;  // CU_MEM_ATTACH_GLOBAL
  const uintptr_t made = world().allocate(entry.context(), bytes, World::Place::managed);
  if (made == 0) return kOutOfMemory;
  *address = made;
  return kSuccess;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  const Entry entry("cuMemFree_v2");
  if (entry.lost()) return entry.code();
  if (const CUresult code = entry.synchronize_device()) return code;
  world().free(address, false, entry.call());
  return entry.code();
}

CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  const Entry entry("cuMemHostAlloc");
  if (entry.code() != kSuccess) return entry.code();
  if (const CUresult code = entry.synchronize_device()) return code;
  if (bytes == 0) return kInvalidValue;
  const bool mapped = (flags & 2) != 0;  // CU_MEMHOSTALLOC_DEVICEMAP
  *memory = reinterpret_cast<void*>(
      world().allocate(entry.context(), bytes, mapped ? World::Place::mapped : World::Place::host));
  return *memory == nullptr ? kOutOfMemory : kSuccess;
}

CUresult cuMemFreeHost(void* memory) {
  const Entry entry("cuMemFreeHost");
  if (entry.lost()) return entry.code();
  if (const CUresult code = entry.synchronize_device()) return code;
  world().free(number(memory), true, entry.call());
  return entry.code();
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  const Entry entry("cuMemGetInfo_v2");
  if (entry.code() != kSuccess) return entry.code();
  *total = world().memory;
  *free_bytes = world().memory - world().count().device_bytes;
  return kSuccess;
}

CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address) {
  const Entry entry("cuPointerGetAttribute");
  if (entry.code() != kSuccess) return entry.code();
  const Allocation* found = world().find(address);
  if (found == nullptr) return kInvalidValue;
  const bool of_host = found->host || found->here != 0;
  if (attribute == kPointerMemoryType)  // CUDA says either of managed memory
    *static_cast<unsigned*>(value) = of_host || found->managed ? kMemoryHost : kMemoryDevice;
  else if (attribute == kPointerIsManaged)
    *static_cast<unsigned*>(value) = found->managed ? 1 : 0;
  else if (attribute == kPointerDevicePointer && found->host && found->there == 0)
    return kInvalidValue;
  else if (attribute == kPointerDevicePointer)
    *static_cast<CUdeviceptr*>(value) =
        found->host ? found->there + (address - found->address) : address;
  else if (attribute == kPointerDeviceOrdinal)
    *static_cast<int*>(value) = found->context->device;
  else
    return kInvalidValue;
  return kSuccess;
}

}  // extern "C"
