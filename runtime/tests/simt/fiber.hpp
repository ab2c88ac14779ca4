// Fibers with their own stacks, and the switch between them. ucontext calls the kernel at every
// switch, which is a hundred times slower.
#pragma once

#include <cstddef>

namespace simt {

// The place where execution stopped.
struct Context {
  void* stack_pointer = nullptr;
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* thread = nullptr;  // the name that ThreadSanitizer knows it by
};

// A stack with a guard page below; `entry` is called at the first switch and must not return.
Context make_fiber(void (*entry)());

// Returns the context of the caller, to switch back to.
Context this_thread();

void switch_fiber(Context& from, Context& to);

// ThreadSanitizer takes fibers for threads that nothing orders. What one does before it releases an
// address happens before what another does after it acquires it.
void release(void* at);
void acquire(void* at);

// This must be the first call in `entry`.
void fiber_entered();

}  // namespace simt
