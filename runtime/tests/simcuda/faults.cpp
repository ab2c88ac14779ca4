// Makes calls fail on request of a test.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "world.hpp"

namespace simcuda {
namespace {

struct Faults {
  int64_t calls = 0;
  std::string name;  // "": none
  int64_t left = 0;  // below 0: all calls fail
  CUresult code = kSuccess;
  const char* failed = nullptr;
  bool failed_in_capture = false;
  int64_t lose = 0;

  Faults() {
    if (const char* text = std::getenv("SIMCUDA_FAIL")) read(text);
    if (const char* text = std::getenv("SIMCUDA_LOSE")) lose = std::atoll(text);
  }

  void read(const std::string& text) {
    const size_t first = text.find(':');
    if (first == std::string::npos) misuse("SIMCUDA_FAIL is '" + text + "', not NAME:COUNT");
    const size_t second = text.find(':', first + 1);
    name = text.substr(0, first);
    left = std::atoll(text.c_str() + first + 1);
    code = second == std::string::npos ? 0 : std::atoi(text.c_str() + second + 1);
  }
};

Faults& faults() {
  static Faults* const only = new Faults;
  return *only;
}

// Returns a likely error of a call.
CUresult likely(const std::string& call) {
  static const std::map<std::string, CUresult> known = {
      {"cuInit", kNoDevice},
      {"cuMemAlloc_v2", kOutOfMemory},
      {"cuMemHostAlloc", kOutOfMemory},
      {"cuDevicePrimaryCtxRetain", kOutOfMemory},
      {"cuModuleLoadData", kOutOfMemory},
      {"cuModuleGetFunction", kNotFound},
      {"cuGraphInstantiateWithFlags", kOutOfMemory},
      {"cuLaunchKernel", 701},  // CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
      {"cuStreamSynchronize", kLaunchFailed},
      {"cuStreamEndCapture", kCaptureInvalidated},
      {"cublasCreate_v2", kBlasAllocFailed},
  };
  const auto found = known.find(call);
  if (found != known.end()) return found->second;
  return call.compare(0, 6, "cublas") == 0 ? 13 : kInvalidValue;  // CUBLAS_STATUS_EXECUTION_FAILED
}

// The number of calls that this thread is in. Programs that count allocations ask for it in their
// malloc, and another model of thread-local memory would allocate there.
thread_local int depth __attribute__((tls_model("initial-exec"))) = 0;

// Whether this thread captures a stream.
thread_local bool capturing __attribute__((tls_model("initial-exec"))) = false;

useconds_t capture_pause() {
  static const char* const text = std::getenv("SIMCUDA_CAPTURE_PAUSE");
  return text != nullptr ? useconds_t(std::atoi(text)) : 0;
}

// Gives other threads time to disturb a capture.
void pause_in_capture() {
  if (capturing && capture_pause() > 0) usleep(capture_pause());
}

bool is_blas(const char* call) { return std::strncmp(call, "cublas", 6) == 0; }

bool is_sticky(CUresult code) {
  return code >= kIllegalAddress && code <= kLaunchFailed && code != 701;
}

}  // namespace

void set_capturing(bool now) { capturing = now; }

Entry::Inside::Inside() {
  pause_in_capture();
  ++depth;
}
Entry::Inside::~Inside() { --depth; }

Entry::Entry(const char* call, bool needs_context) : lock_(World::get().mutex), call_(call) {
  World& world = World::get();
  Faults& wanted = faults();
  ++wanted.calls;
  context_ = world.current();
  if (needs_context && context_ == nullptr)
    misuse(std::string(call) + ": no context is current in this thread");
  if (wanted.lose > 0 && --wanted.lose == 0)
    for (int device = 0; device < world.devices; ++device)
      if (Context* primary = world.primary(device)) primary->lost = kIllegalAddress;
  if (needs_context && context_->lost != kSuccess) {
    code_ = is_blas(call) ? 13 : context_->lost;
    lost_ = true;
    return;
  }
  if (wanted.left == 0 || (wanted.name != "any" && wanted.name != call)) return;
  if (wanted.left > 0 && --wanted.left > 0) return;
  wanted.failed = call;
  wanted.failed_in_capture = capturing || std::strcmp(call, "cuStreamBeginCapture_v2") == 0 ||
                             std::strcmp(call, "cuGraphInstantiateWithFlags") == 0;
  code_ = wanted.code != kSuccess ? wanted.code : likely(call);
  if (is_blas(call) && code_ >= kNoDevice) code_ = 14;  // its codes are others: INTERNAL_ERROR
  if (context_ != nullptr && is_sticky(code_)) context_->lost = code_;
  if (capturing && (wanted.code == kCaptureUnsupported || wanted.code == kCaptureInvalidated))
    world.invalidate_captures(context_, call);
}

void Entry::forbid_capture() const {
  if (World::get().captures())
    misuse(std::string(call_) + ": not simulated while this thread captures a stream");
}

CUresult Entry::refuse_in_capture() const {
  if (!World::get().captures()) return kSuccess;
  for (Stream* stream : World::get().own_captures()) stream->invalid = true;
  return kCaptureUnsupported;
}

CUresult Entry::synchronize_device() const {
  const bool own = World::get().invalidate_captures(context_, call_);
  return own ? int(kCaptureUnsupported) : int(kSuccess);
}

}  // namespace simcuda

using simcuda::faults;
using simcuda::World;

extern "C" {

void simcuda_fail(const char* name, int64_t count, int code) {
  const std::lock_guard<std::recursive_mutex> lock(World::get().mutex);
  faults().name = name;
  faults().left = count;
  faults().code = code;
  faults().failed = nullptr;
  faults().failed_in_capture = false;
}

const char* simcuda_failed(void) { return faults().failed; }

int simcuda_failed_in_capture(void) { return faults().failed_in_capture ? 1 : 0; }

void simcuda_captures(simcuda_capture_numbers* out) {
  const std::lock_guard<std::recursive_mutex> lock(World::get().mutex);
  *out = World::get().capture_numbers;
}

void simcuda_lose(int64_t count) {
  const std::lock_guard<std::recursive_mutex> lock(World::get().mutex);
  faults().lose = count;
}

void simcuda_spoil(const char* kernel) {
  const std::lock_guard<std::recursive_mutex> lock(World::get().mutex);
  World::get().spoiled = kernel;
}

int simcuda_inside(void) { return simcuda::depth > 0 ? 1 : 0; }

int64_t simcuda_calls(void) { return faults().calls; }

void simcuda_set_memory(uint64_t bytes) { World::get().memory = bytes; }

void simcuda_count(simcuda_numbers* out) {
  const std::lock_guard<std::recursive_mutex> lock(World::get().mutex);
  *out = World::get().count();
}

void simcuda_reset_peak(void) { World::get().reset_peak(); }

}  // extern "C"
