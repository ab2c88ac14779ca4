// What accesses with a memory order tell other threads.
#pragma once

#include "warp.hpp"

namespace ptx {

// After a strong access by a lane: it acquires what was released to that address, and releases to
// it what it did before, by itself or by an earlier fence.
void order_access(Warp& warp, const Instruction& i, int lane, const void* at, bool reads,
                  bool writes);

}  // namespace ptx
