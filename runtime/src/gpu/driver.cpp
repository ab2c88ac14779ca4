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

struct Libraries {
  std::mutex loading;
  std::atomic<const Driver*> driver{nullptr};
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

}  // namespace

const Driver& driver() {
  Libraries& all = loaded();
  if (const Driver* loaded_driver = all.driver) return *loaded_driver;
  const std::lock_guard<std::mutex> lock(all.loading);
  if (all.driver == nullptr) all.driver = load_driver().release();
  return *all.driver;
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
  if (code == kCaptureUnsupported || code == kCaptureInvalidated)
    fail(ANOCO_ENGINE, text +
                           ": a CUDA graph was being captured meanwhile; try again, and if it "
                           "stays, capture with thread-local mode in your program and hold "
                           "anoco_cuda_lock around it");
  if (code == kPrimaryContextActive)
    fail(ANOCO_ENGINE, text +
                           ": this process uses the device already, and its driver changes no "
                           "settings any more; open what sets blocking_sync before anything else "
                           "uses the device");
  fail(ANOCO_ENGINE, text + ": the CUDA driver refused; try again, and report it if it stays");
}

}  // namespace anoco::gpu
