#include "fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SIMT_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

// Pushes the registers that a function must preserve onto the stack, and stores the stack pointer
// in *from.
extern "C" void simt_switch(void** from, void* to);

#if defined(__x86_64__)
asm(R"(
  .text
  .globl simt_switch
  .hidden simt_switch
  .type simt_switch, @function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
  .size simt_switch, .-simt_switch
)");
#elif defined(__aarch64__)
asm(R"(
  .text
  .globl simt_switch
  .hidden simt_switch
  .type simt_switch, %function
simt_switch:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
  .size simt_switch, .-simt_switch
)");
#else
#error "the switch between fibers is written for x86-64 and AArch64"
#endif

namespace simt {
namespace {

constexpr size_t kStack = 256 * 1024;  // AddressSanitizer makes frames large

// Builds a frame as simt_switch leaves it, with `entry` as its return address.
void* first_frame(char* top, void (*entry)()) {
#if defined(__x86_64__)
  void** frame = reinterpret_cast<void**>(top) - 8;  // six registers, the address, one to align
  frame[6] = reinterpret_cast<void*>(entry);
#else
  void** frame = reinterpret_cast<void**>(top) - 20;
  frame[1] = reinterpret_cast<void*>(entry);
#endif
  return frame;
}

}  // namespace

Context make_fiber(void (*entry)()) {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, page + kStack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
    std::perror("simt: a stack");
    std::abort();
  }
  char* bottom = static_cast<char*>(memory) + page;
  // Stack tops at the same offset of every page would all fall into the same few cache lines.
  static size_t made = 0;
  const size_t apart = made++ % 64 * 320;
  Context fiber;
  fiber.stack_pointer = first_frame(bottom + kStack - apart, entry);
  fiber.bottom = bottom;
  fiber.bytes = kStack;
#if defined(SIMT_THREAD_SANITIZER)
  fiber.thread = __tsan_create_fiber(0);
#endif
  return fiber;
}

Context this_thread() {
  static thread_local Context here;
#if defined(__SANITIZE_ADDRESS__)
  if (here.bytes == 0) {  // asking is slow
    pthread_attr_t attributes;
    void* bottom = nullptr;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &bottom, &here.bytes);
    pthread_attr_destroy(&attributes);
    here.bottom = bottom;
  }
#endif
#if defined(SIMT_THREAD_SANITIZER)
  here.thread = __tsan_get_current_fiber();
#endif
  return here;
}

void switch_fiber(Context& from, Context& to) {
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, to.bottom, to.bytes);
#endif
#if defined(SIMT_THREAD_SANITIZER)
  // Without this flag a switch would order all that two threads of a block do, and hide every race.
  __tsan_switch_to_fiber(to.thread, __tsan_switch_to_fiber_no_sync);
#endif
  simt_switch(&from.stack_pointer, to.stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void release(void* at) {
#if defined(SIMT_THREAD_SANITIZER)
  __tsan_release(at);
#else
  (void)at;
#endif
}

void acquire(void* at) {
#if defined(SIMT_THREAD_SANITIZER)
  __tsan_acquire(at);
#else
  (void)at;
#endif
}

void fiber_entered() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

}  // namespace simt
