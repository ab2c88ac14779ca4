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

constexpr size_t kDeviceAlignment = 256, kHostAlignment = 64;
constexpr size_t kMostFreed = 4000;
constexpr size_t kMostFresh = 64 << 10;
constexpr int kFresh = 0xff;   // of memory that nothing was written to: NaN
constexpr int kBeyond = 0xa5;  // of what lies behind an allocation of the device

size_t page() { return size_t(sysconf(_SC_PAGESIZE)); }

size_t rounded(size_t size, size_t to) { return (size + to - 1) / to * to; }

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && text[0] != 0 ? std::strtoull(text, nullptr, 10) : otherwise;
}

double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

struct sigaction previous;

// Only what is safe in a signal handler.
void say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(70);
}

void on_fault(int signal, siginfo_t* info, void*) {
  const Allocation* hit = World::get().find(reinterpret_cast<uintptr_t>(info->si_addr));
  if (hit != nullptr && hit->host)
    say("simcuda: misuse: the host touches page-locked memory while a copy of it is under way\n");
  else if (hit != nullptr)
    say("simcuda: misuse: the host touches memory of the device\n");
  sigaction(SIGSEGV, &previous, nullptr);  // and again, as without us
  (void)signal;
}

// Where somebody else listens already (Python's faulthandler, a sanitizer) it is theirs to tell.
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

// A context that was lost takes all that it has along.
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
}

// Memory.

// Address space, with a page on either side that nobody may touch.
Allocation World::reserve(Context* context, size_t bytes, Place place) {
  Allocation made{};
  made.host = place == Place::host || place == Place::mapped;
  made.managed = place == Place::managed;
  made.context = context;
  made.size = bytes;
  const size_t whole = rounded(bytes, made.host ? kHostAlignment : kDeviceAlignment);
  made.pages_size = rounded(whole, page());
  made.map_size = made.pages_size + 2 * page();
  made.map = mmap(nullptr, made.map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made.map == MAP_FAILED) return made;
  made.pages = reinterpret_cast<uintptr_t>(made.map) + page();
  // At the end of its pages: what runs over it is found at once.
  made.address = made.pages + made.pages_size - whole;
  return made;
}

uintptr_t World::add(const Allocation& made) {
  const auto [it, added] = live_.emplace(made.address, made);
  it->second.number = next_number_++;
  account(made, 1);
  protect(it->second);
  return made.address;
}

void World::account(const Allocation& allocation, int sign) {
  if (allocation.here != 0) return;  // it is page-locked memory, and counts as that
  uint64_t& bytes = allocation.host ? host_bytes_ : device_bytes_;
  bytes = sign > 0 ? bytes + allocation.size : bytes - allocation.size;
  peak_ = std::max(peak_, device_bytes_);
}

uintptr_t World::allocate(Context* context, size_t bytes, Place place) {
  if (place != Place::host && place != Place::mapped && device_bytes_ + bytes > memory) return 0;
  Allocation made = reserve(context, bytes, place);
  if (made.map == MAP_FAILED) return 0;
  const auto body = reinterpret_cast<void*>(made.pages);
  if (place == Place::mapped) {
    const int file = memfd_create("simcuda", 0);
    if (file < 0 || ftruncate(file, off_t(made.pages_size)) != 0) misuse("memfd_create failed");
    Allocation there = reserve(context, made.pages_size, Place::device);
    for (const uintptr_t pages : {made.pages, there.pages})
      mmap(reinterpret_cast<void*>(pages), made.pages_size, PROT_NONE, MAP_SHARED | MAP_FIXED, file,
           0);
    close(file);
    there.size = bytes;
    there.address = there.pages + (made.address - made.pages);
    there.here = made.address;
    made.there = add(there);
  }
  mprotect(body, made.pages_size, PROT_READ | PROT_WRITE);
  // Of a large one only the beginning, to be quick.
  std::memset(reinterpret_cast<void*>(made.address), kFresh, std::min(bytes, kMostFresh));
  const uintptr_t end = made.address + bytes;
  std::memset(reinterpret_cast<void*>(end), kBeyond, made.pages + made.pages_size - end);
  return add(made);
}

void World::free(uintptr_t address, bool host, const char* call) {
  const auto it = live_.find(address);
  if (it == live_.end())
    misuse(std::string(call) +
           (was_freed(address) ? ": it was freed before" : ": nothing was allocated there"));
  const Allocation& gone = it->second;
  if (gone.host != host || gone.here != 0) misuse(std::string(call) + ": memory of the other kind");
  if (gone.reading + gone.writing > 0)
    misuse(std::string(call) + ": work that uses it is still under way");
  if (gone.there != 0) {
    const Allocation& there = live_.at(gone.there);
    if (there.reading + there.writing > 0)
      misuse(std::string(call) + ": a kernel that uses it is still under way");
    unmap(there);
  }
  unmap(gone);
}

// The addresses stay taken for a long while, so that whoever still has one is found.
void World::unmap(const Allocation& allocation) {
  const Allocation gone = allocation;
  mmap(gone.map, gone.map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  account(gone, -1);
  freed_.emplace(gone.address, gone.size);
  graveyard_.push_back(gone);
  live_.erase(gone.address);
  if (graveyard_.size() <= kMostFreed) return;
  freed_.erase(graveyard_.front().address);
  munmap(graveyard_.front().map, graveyard_.front().map_size);
  graveyard_.pop_front();
}

void World::protect(const Allocation& allocation) const {
  int rights = PROT_READ | PROT_WRITE;
  const bool open = open_.count(allocation.address) != 0;
  if (allocation.host || (allocation.managed && !open))
    rights = allocation.writing > 0   ? PROT_NONE
             : allocation.reading > 0 ? PROT_READ
                                      : PROT_READ | PROT_WRITE;
  else if (!open)
    rights = PROT_NONE;
  mprotect(reinterpret_cast<void*>(allocation.pages), allocation.pages_size, rights);
}

const Allocation* World::find(uintptr_t address) const {
  auto it = live_.upper_bound(address);
  if (it == live_.begin()) return nullptr;
  --it;
  return it->second.holds(address, 1) ? &it->second : nullptr;
}

bool World::was_freed(uintptr_t address) const {
  auto it = freed_.upper_bound(address);
  return it != freed_.begin() && address - std::prev(it)->first < std::prev(it)->second;
}

Use World::use(const char* call, uintptr_t address, size_t bytes, bool host, bool write) const {
  const Allocation* found = find(address);
  const std::string where = std::string(call) + ": ";
  if (found == nullptr)
    misuse(where + (was_freed(address) ? "a pointer to memory that was freed"
                                       : "a pointer that leads nowhere"));
  if (found->host != host && !found->managed)
    misuse(where + (host ? "a pointer to the device" : "a pointer to the host") +
           " in the wrong place");
  if (!found->holds(address, bytes))
    misuse(where + std::to_string(bytes) + " bytes from " +
           std::to_string(address - found->address) + " on of an allocation that has " +
           std::to_string(found->size));
  return {found->number, address, write};
}

Allocation* World::owner(const Use& use) {
  auto* found = const_cast<Allocation*>(find(use.address));
  return found != nullptr && found->number == use.allocation ? found : nullptr;
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

bool World::captures() const {
  for (const auto& [address, handle] : handles_) {
    if (handle->kind != Kind::stream) continue;
    const auto* stream = static_cast<const Stream*>(handle.get());
    if (stream->capture != nullptr && stream->capturing == std::this_thread::get_id()) return true;
  }
  return false;
}

void World::enqueue(Stream* stream, Work work) {
  if (stream->capture != nullptr) {
    if (stream->capturing != std::this_thread::get_id())
      misuse(work.call + ": on a stream that another thread captures");
    stream->capture->work.push_back(std::move(work));
    return;
  }
  begin(work);
  stream->waiting.push_back(std::move(work));
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

// While one of them lives memory that work uses stays open.
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

// What a piece of work names is all that it may touch; a callback names nothing and may touch all.
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

// Nothing may write behind an allocation, also where that is no page of its own.
void World::check_ends(const Work& work) {
  for (const Use& use : work.uses) {
    const Allocation* used = owner(use);
    if (used == nullptr || used->host) continue;
    const uintptr_t end = used->pages + used->pages_size;
    const auto* byte = reinterpret_cast<const unsigned char*>(used->address + used->size);
    for (; reinterpret_cast<uintptr_t>(byte) < end; ++byte)
      if (*byte != kBeyond)
        misuse(work.call + " wrote behind the end of an allocation of " +
               std::to_string(used->size) + " bytes");
  }
}

}  // namespace simcuda
