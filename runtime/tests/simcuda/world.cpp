#include "world.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace simcuda {
namespace {

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && text[0] != 0 ? std::strtoull(text, nullptr, 10) : otherwise;
}

double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

struct sigaction previous;

// Uses only what is safe in a signal handler.
void say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(70);
}

void on_fault(int signal, siginfo_t* info, void*) {
  const Allocation* hit = World::get().find(reinterpret_cast<uintptr_t>(info->si_addr));
  if (hit != nullptr && hit->host)
    say("simcuda: misuse: the host touches page-locked memory while a copy of it is under way\n");
  else if (hit != nullptr)
    say("simcuda: misuse: the host touches memory of the device\n");
  sigaction(SIGSEGV, &previous, nullptr);  // the fault happens again, without our handler
  (void)signal;
}

// If another handler is installed (Python's faulthandler, a sanitizer), it reports the fault.
void listen_to_faults() {
  struct sigaction action = {};
  sigaction(SIGSEGV, nullptr, &previous);
  if (previous.sa_handler != SIG_DFL) return;
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

void tell_leaks() {
  const char* wanted = std::getenv("SIMCUDA_LEAKS");
  if (wanted == nullptr || wanted[0] == 0) return;
  const std::string text = World::get().leaks();
  if (text.empty()) return;
  std::fprintf(stderr, "simcuda: not given back: %s\n", text.c_str());
  std::fflush(stderr);
  if (std::strcmp(wanted, "fail") == 0) _exit(70);
}

}  // namespace

void misuse(const std::string& what) {
  std::fprintf(stderr, "simcuda: misuse: %s\n", what.c_str());
  std::fflush(stderr);
  std::abort();
}

World& World::get() {
  static World* const only = new World;
  return *only;
}

World::World()
    : devices(int(setting("SIMCUDA_DEVICES", 1))),
      capability(int(setting("SIMCUDA_CAPABILITY", 87))),
      driver_version(int(setting("SIMCUDA_DRIVER_VERSION", 12060))),
      memory(setting("SIMCUDA_MEMORY", uint64_t{4} << 30)) {
  listen_to_faults();
  std::atexit(tell_leaks);
}

// Contexts.

std::vector<Context*>& World::stack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

Context* World::current() { return stack().empty() ? nullptr : stack().back(); }

Context* World::retain(int device) {
  Context*& primary = primaries_[device];
  if (primary == nullptr) {
    contexts_.push_back(std::make_unique<Context>());
    primary = contexts_.back().get();
    primary->device = device;
  }
  ++primary->users;
  return primary;
}

void World::release(int device) {
  Context*& primary = primaries_[device];
  if (primary == nullptr)
    misuse("cuDevicePrimaryCtxRelease_v2: the primary context was not retained so often");
  if (--primary->users > 0) return;
  Context* const gone = primary;
  const std::string left = gone->lost == kSuccess ? leaks() : "";
  primaries_.erase(device);
  if (!left.empty() && primaries_.empty())
    misuse("cuDevicePrimaryCtxRelease_v2: the last user goes and leaves " + left);
  forget(gone);
}

// A lost context takes everything that it has with it.
void World::forget(Context* context) {
  for (auto it = live_.begin(); it != live_.end();) {
    const Allocation gone = it->second;
    ++it;
    if (gone.context == context) unmap(gone);
  }
  for (auto it = handles_.begin(); it != handles_.end();) {
    Handle* handle = (it++)->second.get();
    if (handle->context == context) destroy(handle);
  }
  default_streams_.erase(context);
  for (auto it = kernels_.begin(); it != kernels_.end();)
    it = it->first == context ? kernels_.erase(it) : std::next(it);
}

// Handles.

Handle* World::checked(const char* call, const void* handle, Kind kind) const {
  const auto it = handles_.find(handle);
  if (it != handles_.end() && it->second->kind == kind) return it->second.get();
  misuse(std::string(call) + (gone_.count(handle) != 0 ? ": a handle that was destroyed before"
                                                       : ": a handle that is none, or of another "
                                                         "kind"));
}

void World::destroy(Handle* handle) {
  const auto it = handles_.find(handle);
  handle->live = false;
  gone_.insert(*it);
  handles_.erase(it);
}

Stream* World::stream(const char* call, CUstream handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number > 2) {  // 1 and 2 are CU_STREAM_LEGACY and CU_STREAM_PER_THREAD
    Stream* found = check<Stream>(call, handle, Kind::stream);
    if (found->context != current()) misuse(std::string(call) + ": a stream of another context");
    return found;
  }
  if (captures()) misuse(std::string(call) + ": the default stream while another is captured");
  Stream*& made = default_streams_[current()];
  if (made == nullptr) made = make<Stream>(Kind::stream, current());
  return made;
}

// Work.

std::vector<Stream*> World::own_captures() const {
  std::vector<Stream*> found;
  for (const auto& [address, handle] : handles_) {
    if (handle->kind != Kind::stream) continue;
    auto* stream = static_cast<Stream*>(handle.get());
    if (stream->capture != nullptr && stream->capturing == std::this_thread::get_id())
      found.push_back(stream);
  }
  return found;
}

bool World::has_captures(Context* context) const {
  for (const auto& [address, handle] : handles_)
    if (handle->kind == Kind::stream && handle->context == context &&
        static_cast<const Stream*>(handle.get())->capture != nullptr)
      return true;
  return false;
}

bool World::invalidate_captures(Context* context, const char* call) {
  bool own = false;
  for (auto& [address, handle] : handles_) {
    auto* stream = static_cast<Stream*>(handle.get());
    if (handle->kind != Kind::stream || handle->context != context || stream->capture == nullptr)
      continue;
    const bool mine = stream->capturing == std::this_thread::get_id();
    own = own || mine;
    if (stream->invalid) continue;
    stream->invalid = true;
    if (mine) continue;
    ++capture_numbers.broken;
    capture_numbers.broken_by = call;
  }
  return own;
}

CUresult World::enqueue(Stream* stream, Work work) {
  if (stream->capture != nullptr) {
    if (stream->capturing != std::this_thread::get_id())
      misuse(work.call + ": on a stream that another thread captures");
    if (stream->invalid) return kCaptureInvalidated;
    stream->capture->work.push_back(std::move(work));
    return kSuccess;
  }
  begin(work);
  stream->waiting.push_back(std::move(work));
  return kSuccess;
}

void World::begin(const Work& work) {
  for (const Use& use : work.uses) {
    Allocation* used = owner(use);
    if (used == nullptr)
      misuse(work.call + ": memory that was freed since this graph was captured");
    ++(use.write ? used->writing : used->reading);
    if (used->host || used->managed) protect(*used);
  }
}

void World::end(const Work& work) {
  for (const Use& use : work.uses) {
    Allocation* used = owner(use);
    if (used == nullptr) continue;
    --(use.write ? used->writing : used->reading);
    if (used->host || used->managed) protect(*used);
  }
}

// While one of these exists, memory that work uses stays accessible.
World::Running::Running(World& world) : world_(world) { ++world_.running_; }

World::Running::~Running() {
  if (--world_.running_ > 0) return;
  const std::set<uintptr_t> opened = std::move(world_.open_);
  world_.open_.clear();
  for (const uintptr_t address : opened) {
    const auto it = world_.live_.find(address);
    if (it != world_.live_.end()) world_.protect(it->second);
  }
}

// Work may touch only the memory that it names; a callback names nothing and may touch all.
void World::open(const Work& work) {
  const auto open_one = [&](const Allocation& allocation) {
    if (!allocation.host && open_.insert(allocation.address).second) protect(allocation);
  };
  if (work.uses.empty())
    for (const auto& [address, allocation] : live_) open_one(allocation);
  for (const Use& use : work.uses) {
    const Allocation* used = owner(use);
    if (used == nullptr) continue;
    open_one(*used);
    if (used->host)
      mprotect(reinterpret_cast<void*>(used->pages), used->pages_size, PROT_READ | PROT_WRITE);
  }
}

void World::finish(Stream* stream, const Mark* until) {
  if (stream->capture != nullptr) misuse("waiting for a stream that is being captured");
  if (stream->waiting.empty()) return;
  const Running running(*this);
  while (!stream->waiting.empty() && (until == nullptr || !until->passed)) {
    const Work work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    if (work.wait_for && !work.wait_for->passed) finish(work.wait_for->stream, work.wait_for.get());
    run_now(work);
    end(work);
  }
}

void World::finish_all(Context* context) {
  for (auto& [address, handle] : handles_)
    if (handle->kind == Kind::stream && handle->context == context)
      finish(static_cast<Stream*>(handle.get()));
}

void World::run_now(const Work& work) {
  if (work.run) {
    open(work);
    work.run();
    check_ends(work);
  }
  if (!work.mark) return;
  work.mark->passed = true;
  work.mark->milliseconds = now();
}

}  // namespace simcuda
