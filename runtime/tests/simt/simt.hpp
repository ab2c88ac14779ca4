// A small emulation of the way a GPU runs kernels: the .cu files of runtime/cuda are compiled for
// the CPU (cuda_on_cpu.hpp is what they see) and every thread of a block is a fiber. Blocks run one
// after the other, in one thread of the process at a time.
//
// It finds misuse and ends the program with a message: a barrier that not all threads of a block
// reach, threads that meet at different barriers, a shuffle whose lanes do not all come. Threads
// can be run in another order, which must not change the results. Races in a block are found where
// it is built with ThreadSanitizer; the interpreter of PTX (../ptx) finds those between blocks too.
// Shared memory is filled with 0xff bytes before each block (guarded by AddressSanitizer where that
// is on, and then not filled).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace simt {

struct Size {
  unsigned x = 1, y = 1, z = 1;
};

struct Kernel {
  const char* name;
  std::vector<size_t> parameters;     // bytes of each, in order
  void (*call)(void* const* values);  // one thread
};

const std::vector<Kernel>& kernels();
const Kernel* find(const char* name);  // null: there is none

// Runs a kernel to its end. values[i] points at the i-th parameter, as cuLaunchKernel has it.
// `shared` bytes of dynamic shared memory must be 0: no kernel uses it.
void launch(const Kernel& kernel, Size grid, Size block, size_t shared, void* const* values);

enum class Order { forward, backward, shuffled };
void run_threads(Order order);  // from the next launch on

}  // namespace simt
