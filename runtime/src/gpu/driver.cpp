#include "gpu/driver.hpp"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace anoco::gpu {
namespace {

constexpr const char* kVariable = "ANOCO_CUDA_DRIVER";
constexpr const char* kDriverName = "libcuda.so.1";
constexpr int kOldestDriver = 11040;  // has cuGraphInstantiateWithFlags

std::string driver_name() {
  const char* named = std::getenv(kVariable);
  return named != nullptr && named[0] != 0 ? named : kDriverName;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Library open_library(const std::string& name) {
  return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::string dl_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "it cannot be loaded";
}

const std::string& what_to_do() {
  static const std::string text =
      "install the driver of an NVIDIA device (in a container: start it with --gpus all or "
      "--runtime nvidia), or score on the CPU";
  return text;
}

void bind(Driver& table) {
  const char* missing = nullptr;
#define ANOCO_BIND(name, ...) \
  if (!table.name.bind(table.library) && missing == nullptr) missing = #name;
  ANOCO_DRIVER_CALLS(ANOCO_BIND)
#undef ANOCO_BIND
  if (missing != nullptr)
    fail(ANOCO_NO_BACKEND, "the CUDA driver " + driver_name() + " has no " + missing +
                               ": it is older than CUDA " + version_text(kOldestDriver) +
                               "; install a newer one");
}

const char* bind(Cublas& table, Library library) {
  const char* missing = nullptr;
#define ANOCO_BIND(name, ...) \
  if (!table.name.bind(library) && missing == nullptr) missing = #name;
  ANOCO_CUBLAS_CALLS(ANOCO_BIND)
#undef ANOCO_BIND
  return missing;
}

void start(Driver& table) {
  const int code = table.cuInit.unchecked(0);
  if (code == kNoDevice)
    fail(ANOCO_NO_BACKEND,
         "cuInit: CUDA_ERROR_NO_DEVICE: there is no NVIDIA device on this "
         "machine, or CUDA_VISIBLE_DEVICES hides it; " +
             what_to_do());
  if (code != kSuccess) {
    const char* name = nullptr;
    table.cuGetErrorName.unchecked(code, &name);
    fail(ANOCO_NO_BACKEND, std::string("cuInit: ") + (name != nullptr ? name : "unknown error") +
                               ": the CUDA driver does not start; " + what_to_do());
  }
  table.cuDriverGetVersion(&table.version);
  if (table.version < kOldestDriver)
    fail(ANOCO_NO_BACKEND, "the CUDA driver is of version " + version_text(table.version) +
                               ", at least " + version_text(kOldestDriver) +
                               " is needed: install a newer one");
}

std::unique_ptr<const Driver> load_driver() {
  auto table = std::make_unique<Driver>();
  table->library = open_library(driver_name());
  if (table->library == nullptr)
    fail(ANOCO_NO_BACKEND, "the CUDA driver cannot be loaded: " + dl_error() + "; " + what_to_do());
  table->simulated = dlsym(table->library, "anoco_simulated_driver") != nullptr;
  bind(*table);
  start(*table);
  return table;
}

std::unique_ptr<const Cublas> load_cublas(const Driver& driver) {
  auto table = std::make_unique<Cublas>();
  // The simulated driver contains cuBLAS as well.
  if (bind(*table, driver.library) == nullptr) return table;
  const std::string name = cublas_file(driver.version);
  const Library library = open_library(name);
  if (library == nullptr)
    fail(ANOCO_NO_BACKEND, "cuBLAS cannot be loaded: " + dl_error() +
                               "; it comes with CUDA and with JetPack: install it, or add the "
                               "folder of " +
                               name + " to LD_LIBRARY_PATH");
  if (const char* missing = bind(*table, library))
    fail(ANOCO_NO_BACKEND, name + " has no " + missing + ": install a newer CUDA");
  return table;
}

struct Libraries {
  std::mutex loading;
  std::atomic<const Driver*> driver{nullptr};
  std::atomic<const Cublas*> cublas{nullptr};
};

// Never destroyed, because programs destroy scorers while they exit.
Libraries& loaded() {
  static Libraries* const only = new Libraries;
  return *only;
}

std::string error_name(CUresult code) {
  const char* name = nullptr;
  const Driver* const loaded_driver = loaded().driver;
  if (loaded_driver != nullptr &&
      loaded_driver->cuGetErrorName.unchecked(code, &name) == kSuccess && name != nullptr)
    return name;
  return "CUDA error " + std::to_string(code);
}

const char* cublas_name(int code) {
  switch (code) {
    case 1: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3: return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7: return "CUBLAS_STATUS_INVALID_VALUE";
    case 8: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case 11: return "CUBLAS_STATUS_MAPPING_ERROR";
    case 13: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 14: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case 15: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "an unknown status";
  }
}

constexpr const char* kMoreMemory =
    ": the device's memory is full; lower memory_mb, thin the bank, or end what else uses it";

}  // namespace

const Driver& driver() {
  Libraries& all = loaded();
  if (const Driver* loaded_driver = all.driver) return *loaded_driver;
  const std::lock_guard<std::mutex> lock(all.loading);
  if (all.driver == nullptr) all.driver = load_driver().release();
  return *all.driver;
}

const Cublas& cublas() {
  Libraries& all = loaded();
  if (const Cublas* loaded_driver = all.cublas) return *loaded_driver;
  const Driver& below = driver();
  const std::lock_guard<std::mutex> lock(all.loading);
  if (all.cublas == nullptr) all.cublas = load_cublas(below).release();
  return *all.cublas;
}

const char* cublas_file(int driver_version) {
  return driver_version >= 13000 ? "libcublas.so.13" : "libcublas.so.12";
}

bool is_sticky(CUresult code) {
  switch (code) {
    case kEccUncorrectable:
    case kIllegalAddress:
    case kLaunchTimeout:
    case kContextIsDestroyed:
    case kAssert:
    case kHardwareStackError:
    case kIllegalInstruction:
    case kMisalignedAddress:
    case kInvalidAddressSpace:
    case kInvalidPc:
    case kLaunchFailed:
    case kUnknown: return true;
    default: return false;
  }
}

void fail_driver_call(const char* name, int code) {
  const std::string text = std::string(name) + ": " + error_name(code);
  if (code == kOutOfMemory) fail(ANOCO_OUT_OF_MEMORY, text + kMoreMemory);
  if (is_sticky(code))
    fail(ANOCO_ENGINE, text +
                           ": the device is lost to all that was made on it so far, which cannot "
                           "recover; destroy it and make a new detector or scorer, and if that "
                           "fails too, restart the program");
  fail(ANOCO_ENGINE, text + ": the CUDA driver refused; try again, and report it if it stays");
}

void fail_cublas_call(const char* name, int code) {
  const std::string text = std::string(name) + ": " + cublas_name(code);
  if (code == kBlasAllocFailed) fail(ANOCO_OUT_OF_MEMORY, text + kMoreMemory);
  fail(ANOCO_ENGINE, text + ": cuBLAS failed; check that it fits the driver (anoco-edge doctor)");
}

}  // namespace anoco::gpu
