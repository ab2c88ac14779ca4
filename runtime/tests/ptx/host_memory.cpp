#include "host_memory.hpp"

#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <new>

namespace {

// Memory of the interpreter itself is allocated while this is set.
thread_local bool inside = false;

class Inside {
 public:
  Inside() : before_(inside) { inside = true; }
  ~Inside() { inside = before_; }

 private:
  bool before_;
};

std::recursive_mutex& mutex() {
  static std::recursive_mutex only;
  return only;
}

ptx::Memory& memory() {
  static ptx::Memory* const only = new ptx::Memory;
  return *only;
}

void* take(size_t bytes, size_t align) {
  void* made = nullptr;
  if (align <= alignof(std::max_align_t))
    made = std::malloc(bytes == 0 ? 1 : bytes);
  else if (posix_memalign(&made, align, bytes) != 0)
    made = nullptr;
  if (made == nullptr) throw std::bad_alloc();
  if (inside) return made;
  const Inside here;
  const std::lock_guard<std::recursive_mutex> lock(mutex());
  memory().add(made, bytes);
  return made;
}

void give(void* what) {
  if (!inside) {
    const Inside here;
    const std::lock_guard<std::recursive_mutex> lock(mutex());
    memory().remove(what);
  }
  std::free(what);
}

void* top_of_stack() {
  pthread_attr_t attributes;
  void* bottom = nullptr;
  size_t bytes = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &bottom, &bytes);
  pthread_attr_destroy(&attributes);
  return static_cast<char*>(bottom) + bytes;
}

}  // namespace

void* operator new(size_t bytes) { return take(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t align) { return take(bytes, size_t(align)); }
void operator delete(void* what) noexcept { give(what); }
void operator delete(void* what, size_t) noexcept { give(what); }
void operator delete(void* what, std::align_val_t) noexcept { give(what); }
void operator delete(void* what, size_t, std::align_val_t) noexcept { give(what); }

namespace simt {

HostMemory::HostMemory() : stack_(this) {
  mutex().lock();
  inside = true;
  static thread_local const char* const top = static_cast<const char*>(top_of_stack());
  memory().add(stack_, size_t(top - static_cast<const char*>(stack_)));
}

HostMemory::~HostMemory() {
  memory().remove(stack_);
  inside = false;
  mutex().unlock();
}

ptx::Memory& HostMemory::get() const { return memory(); }

}  // namespace simt
