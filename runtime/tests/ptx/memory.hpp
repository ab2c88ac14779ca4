// The memory of a launch: where an access may go, whether its bytes have a value, and whether it
// races with another.
#pragma once

#include <map>
#include <vector>

#include "order.hpp"

namespace ptx {

enum class ByteState : uint8_t { unwritten, written, pending };  // pending: by cp.async

struct Region {
  uintptr_t start = 0;
  size_t bytes = 0;
  unsigned shift = 2;             // 2^shift bytes share a cell
  std::vector<Cell> cells;        // none before the first access
  std::vector<ByteState> states;  // of shared and local memory, one a byte

  bool holds(uintptr_t address, size_t count) const {
    return address >= start && count <= bytes && address - start <= bytes - count;
  }
  // Makes cells so small that an access covers whole ones.
  void refine(size_t offset, size_t count);
};

struct Memory::Tables {
  std::map<uintptr_t, Region> regions;  // by address
  uint32_t clock = 1;                   // of the next launch

  Region* find(uintptr_t address, size_t bytes);
};

struct Touch {
  bool reads, writes, strong;
};

// Null if nothing is wrong, else the earlier access that nothing orders before this one.
const Access* find_race(Region& region, size_t offset, size_t bytes, const Touch& touch,
                        const WarpOrder& order, int lane);

// What is at these bytes that a thread may not touch, or null.
const char* find_state(const Region& region, size_t offset, size_t bytes, const Touch& touch);

}  // namespace ptx
