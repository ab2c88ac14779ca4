// What became of the CUDA graphs of a context or of a scorer.
#pragma once

#include <cstdint>
#include <string>

namespace anoco::gpu {

// One thread at a time uses it.
struct GraphCounts {
  int64_t made = 0, failed = 0;
  int64_t postponed = 0;  // other threads were changing a device
  bool given_up = false;  // of one or more of its parts
  std::string reason;     // of the last failure
};

}  // namespace anoco::gpu
