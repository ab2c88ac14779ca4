// One block of threads, run until all have ended.
#pragma once

#include "cuda_on_cpu.hpp"
#include "simt.hpp"

namespace simt {

constexpr unsigned kMostThreads = 1024;

struct Work {
  const Kernel* kernel;
  void* const* values;
  Size block;
  Order order;
};

// blockIdx, blockDim and gridDim are set.
void run_block(const Work& work);

}  // namespace simt
