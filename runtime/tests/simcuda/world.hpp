// The state of the simulated device: memory, handles and pending work.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/cuda_types.hpp"
#include "simcuda.h"

namespace simcuda {

using namespace anoco::gpu;

// Reports that the program does something that CUDA does not allow, and ends it.
[[noreturn]] void misuse(const std::string& what);

// A primary context. A device gets a new one after all users of the last have given it back.
struct Context {
  int device;
  int users = 0;
  CUresult lost = kSuccess;
};

struct Allocation {
  uint64_t number;
  uintptr_t address;
  size_t size;
  bool host;     // page-locked
  bool managed;  // used by host and device
  // For mapped page-locked memory: where the device finds it. That is another address, so that a
  // program that does not ask for it is found. It is an allocation of the device, and has the
  // host's address.
  uintptr_t there, here;
  Context* context;
  void* map;  // with the pages around it that nobody may touch
  size_t map_size;
  uintptr_t pages;  // the first that belongs to it
  size_t pages_size;
  int reading = 0, writing = 0;  // pieces of work that wait and use it

  bool holds(uintptr_t from, size_t bytes) const {
    return from >= address && bytes <= size && from - address <= size - bytes;
  }
};

// The memory that a piece of work touches.
struct Use {
  uint64_t allocation;
  uintptr_t address;  // any in it
  bool write;
};

// A point in the order of a stream.
struct Mark {
  struct Stream* stream;
  bool passed = false;
  double milliseconds = 0;
};

struct Work {
  std::string call;
  std::vector<Use> uses;
  std::function<void()> run;
  std::shared_ptr<Mark> wait_for, mark;
};

enum class Kind { stream, event, graph, exec, module, function, blas };

struct Handle {
  Kind kind;
  Context* context;
  bool live = true;
};

struct Graph : Handle {
  std::vector<Work> work;
};

struct Stream : Handle {
  std::deque<Work> waiting;
  Graph* capture = nullptr;
  std::thread::id capturing;  // by which thread
  bool invalid = false;       // the capture, which fails at its end
};

struct Event : Handle {
  bool timed;
  std::shared_ptr<Mark> mark;
};

struct Exec : Handle {
  std::vector<Work> work;
};

struct Module : Handle {};

struct Function : Handle {
  Module* module;
  std::string name;
};

struct Blas : Handle {
  Stream* stream = nullptr;
  uintptr_t workspace = 0;
  size_t workspace_size = 0;
  int math = 0;
};

class World {
 public:
  static World& get();

  std::recursive_mutex mutex;
  int devices, capability, driver_version;
  uint64_t memory;
  bool started = false;

  // Contexts.
  Context* retain(int device);
  void release(int device);
  Context* current();  // of this thread, or null
  Context* primary(int device) const {
    const auto found = primaries_.find(device);
    return found == primaries_.end() ? nullptr : found->second;
  }
  std::vector<Context*>& stack();

  // Memory. 0: there is none left.
  enum class Place { device, host, mapped, managed };
  uintptr_t allocate(Context* context, size_t bytes, Place place);
  void free(uintptr_t address, bool host, const char* call);
  const Allocation* find(uintptr_t address) const;
  bool was_freed(uintptr_t address) const;
  // Checks that the bytes from this address on lie in one allocation of that kind.
  Use use(const char* call, uintptr_t address, size_t bytes, bool host, bool write) const;

  // Handles.
  template <class T>
  T* make(Kind kind, Context* context) {
    auto made = std::make_shared<T>();
    made->kind = kind;
    made->context = context;
    handles_.emplace(made.get(), made);
    return made.get();
  }
  // Checks that a handle is one of ours, of that kind, and alive.
  template <class T>
  T* check(const char* call, const void* handle, Kind kind) {
    return static_cast<T*>(checked(call, handle, kind));
  }
  Stream* stream(const char* call, CUstream handle);  // NULL: the default one
  void destroy(Handle* handle);

  // Work. The code is not 0 for a capture that is invalid.
  CUresult enqueue(Stream* stream, Work work);
  void finish(Stream* stream, const Mark* until = nullptr);
  void finish_all(Context* context);
  void run_now(const Work& work);
  std::vector<Stream*> own_captures() const;  // the streams that this thread captures
  bool captures() const { return !own_captures().empty(); }
  // Makes all captures in a context invalid, because `call` synchronizes the device. Tells whether
  // this thread has one of them.
  bool invalidate_captures(Context* context, const char* call);
  bool has_captures(Context* context) const;  // any thread
  // Tells whether cuBLAS needs this kernel for the first time in a context, and so loads a module.
  bool loads_kernel(Context* context, const std::string& name) {
    return kernels_.emplace(context, name).second;
  }
  simcuda_numbers count() const;
  void reset_peak() { peak_ = device_bytes_; }
  std::string leaks() const;

  int64_t launches = 0, graph_launches = 0, pageable_copies = 0;
  simcuda_capture_numbers capture_numbers{};
  std::map<int, unsigned> context_flags;  // by device
  std::string spoiled;                    // the kernel that computes wrong, see simcuda_spoil

 private:
  class Running {
   public:
    explicit Running(World& world);
    ~Running();

   private:
    World& world_;
  };

  World();
  Handle* checked(const char* call, const void* handle, Kind kind) const;
  void forget(Context* context);
  Allocation reserve(Context* context, size_t bytes, Place place);
  uintptr_t add(const Allocation& made);
  void account(const Allocation& allocation, int sign);
  void unmap(const Allocation& allocation);
  void protect(const Allocation& allocation) const;
  void open(const Work& work);
  void begin(const Work& work);
  void end(const Work& work);
  void run(const Work& work);
  void check_ends(const Work& work);
  Allocation* owner(const Use& use);
  bool belongs_to_caller(const Handle& handle) const;

  std::map<int, Context*> primaries_;
  std::vector<std::unique_ptr<Context>> contexts_;
  std::map<uintptr_t, Allocation> live_;  // by address
  std::map<uintptr_t, size_t> freed_;
  std::deque<Allocation> graveyard_;  // the same in order
  // Destroyed handles are kept, so that a later use of them is recognized.
  std::map<const void*, std::shared_ptr<Handle>> handles_, gone_;
  std::map<Context*, Stream*> default_streams_;
  std::set<std::pair<Context*, std::string>> kernels_;  // of cuBLAS that are loaded
  uint64_t next_number_ = 1, device_bytes_ = 0, host_bytes_ = 0, peak_ = 0;
  int running_ = 0;
  std::set<uintptr_t> open_;  // allocations of the device that can be used now
};

// Every call begins with one of these: it takes the lock and says whether the call has to fail.
class Entry {
 public:
  // `needs_context`: one must be current.
  explicit Entry(const char* call, bool needs_context = true);

  CUresult code() const { return code_; }  // not 0: return it
  bool lost() const { return lost_; }      // and do nothing
  const char* call() const { return call_; }
  void forbid_capture() const;  // misuse where this thread captures a stream
  // For calls that a thread may not make while it captures: the code to return, not 0 if it does.
  // Its capture is then invalid.
  CUresult refuse_in_capture() const;
  // The same for calls that synchronize the device: the captures of other threads are invalid too.
  CUresult synchronize_device() const;
  Context* context() const { return context_; }

 private:
  // The first member, so that it counts all that the others do.
  struct Inside {
    Inside();
    ~Inside();
  } inside_;
  std::unique_lock<std::recursive_mutex> lock_;
  const char* call_;
  Context* context_ = nullptr;
  CUresult code_ = kSuccess;
  bool lost_ = false;
};

// Says that this thread begins or ends a capture: it pauses in every call in between, see
// SIMCUDA_CAPTURE_PAUSE.
void set_capturing(bool capturing);

}  // namespace simcuda
