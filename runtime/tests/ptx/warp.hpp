// The state of a launch while it runs: its blocks, their warps, and where each lane is.
#pragma once

#include <cstring>
#include <deque>
#include <type_traits>

#include "memory.hpp"

namespace ptx {

// Shared and local memory as generic addresses see them.
constexpr uint64_t kSharedWindow = 0xfffe000000000000u, kLocalWindow = 0xffff000000000000u;

template <class Body>
inline void each(Lanes lanes, Body body) {
  if (lanes == kAllLanes)
    for (int lane = 0; lane < kWarp; ++lane) body(lane);
  else
    for (; lanes != 0; lanes &= lanes - 1) body(__builtin_ctz(lanes));
}

template <class T>
using Slot = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
inline T get(const char* vector, int lane) {
  T value;
  std::memcpy(&value, vector + size_t(lane) * sizeof(Slot<T>), sizeof value);
  return value;
}

// Numbers of 8 and 16 bits lie in slots of 32, with their sign.
template <class T>
inline void put(char* vector, int lane, T value) {
  Slot<T> slot = 0;
  if constexpr (std::is_integral_v<T>)
    slot = Slot<T>(value);
  else
    std::memcpy(&slot, &value, sizeof value);
  std::memcpy(vector + size_t(lane) * sizeof slot, &slot, sizeof slot);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint32_t below(uint32_t count) { return uint32_t((next() >> 32) * count >> 32); }

 private:
  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  uint64_t state_;
};

// Lanes of a warp that are at the same instruction.
struct Split {
  uint32_t at;
  Lanes lanes;
  bool waiting;
};

struct AsyncCopy {
  uint64_t to, from;
  uint32_t bytes, read;  // the rest is filled with zeros
};

struct Block;
struct Launch;

class Warp {
 public:
  void start(Block* block, uint32_t index, uint32_t threads);
  bool ended() const { return splits_.empty(); }
  bool can_run() const;
  void run(uint32_t steps);  // at most so many instructions

  // Of a barrier of the block: the instruction that all lanes wait at, or null.
  const Instruction* at_barrier() const;
  void pass_barrier();
  Lanes lanes() const;  // that have not ended
  std::string describe() const;

  // For instructions.
  const char* in(const Operand& o) const {
    return (o.constant ? constants_ : registers_.data()) + o.place;
  }
  char* out(const Operand& o) { return registers_.data() + o.place; }
  Lanes bits(const Operand& o) const {
    Lanes value;
    std::memcpy(&value, in(o), sizeof value);
    return o.inverted ? ~value : value;
  }
  void set_bits(const Operand& o, Lanes value, Lanes lanes) {
    value = (value & lanes) | (bits({o.place, false, false, true}) & ~lanes);
    std::memcpy(out(o), &value, sizeof value);
  }
  uint64_t address(const Instruction& i, int lane) const;
  // The place in this process of memory that a lane touches, after all checks.
  char* reach(const Instruction& i, int lane, Space space, uint64_t address, uint32_t bytes,
              const Touch& touch);
  [[noreturn]] void fault(const Instruction& i, int lane, const std::string& what) const;

  Block& block() { return *block_; }
  Launch& launch();
  WarpOrder order;
  // cp.async of each lane: committed groups, and behind them the one that is open.
  std::array<std::deque<std::vector<AsyncCopy>>, kWarp> copies;

 private:
  size_t choose();
  void step(Split& split);
  void come_together(Split& split, const Instruction& i, Lanes lanes);
  void merge();
  Lanes needed(const Instruction& i, int lane) const;

  Block* block_ = nullptr;
  uint32_t index_ = 0, threads_ = 0;
  const char* constants_ = nullptr;
  std::vector<char> registers_, local_;
  std::vector<Region> local_regions_;  // of each lane
  std::vector<Split> splits_;
};

struct Block {
  Launch* launch = nullptr;
  uint32_t index = 0;
  Size at;
  std::vector<char> shared;
  Region shared_region;
  BlockOrder order;
  std::vector<Warp> warps;

  bool can_run() const;
  bool ended() const;
  void start(Launch& launch, uint32_t index);
  // Lets the warps pass a barrier that all have reached, or throws if they never will.
  void meet();
};

struct Launch {
  const Kernel* kernel;
  Size grid, block;
  size_t dynamic_shared;
  Memory::Tables* memory;
  Options options;
  Random random;
  std::vector<char> parameters;
  std::vector<uint64_t> executed;  // lanes, by instruction
  std::vector<Region*> last;       // the region that an instruction reached last
  std::unordered_map<uintptr_t, Knowledge> released;
  uint32_t clock, last_clock;

  std::string where(const Block& block, const Instruction& i) const;
};

inline Launch& Warp::launch() { return *block_->launch; }

}  // namespace ptx
