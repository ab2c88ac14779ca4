// The memory of a test program as that of a device: everything that it has allocated with new is an
// allocation, with its exact size, and so is what it has on the stack.
#pragma once

#include "ptx.hpp"

namespace simt {

// While it lives, memory that is allocated is not added.
class HostMemory {
 public:
  HostMemory();
  ~HostMemory();
  ptx::Memory& get() const;

 private:
  void* stack_;
};

}  // namespace simt
