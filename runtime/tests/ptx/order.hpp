// Which accesses to memory happen before which: vector clocks, kept as small as the ways in which
// the threads of a launch can wait for each other allow.
//
// Every thread has a clock, which rises when it synchronizes. A thread "knows" the accesses of
// others that happened before what it does now:
//   of its block      all with a clock below the block's last barrier (one number for all threads),
//   of its warp       all with a clock below the last bar.warp.sync with that lane (32 x 32
//   numbers), of other threads  what it acquired by fences and atomics (a table, rarely there at
//   all).
// Clocks rise over launches too, and a launch knows all that happened before it.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "program.hpp"

namespace ptx {

// Who accessed a cell last. Accesses of several threads that nothing orders among themselves
// (reads, atomics) are kept as one of the whole warp, block or grid, with the latest clock.
struct Access {
  enum Width : uint32_t { lane, warp, block, grid };
  uint32_t who = 0;  // block << 10 | thread
  uint32_t clock : 28, width : 2, strong : 1;

  Access() : clock(0), width(lane), strong(0) {}
  Access(uint32_t who, uint32_t clock, bool strong)
      : who(who), clock(clock & 0xfffffffu), width(lane), strong(strong ? 1 : 0) {}
  // Makes it an access of both.
  void join(const Access& other);
};

constexpr unsigned kThreadBits = 10;

struct Cell {
  Access write, read;
};

// Clocks below which accesses are known, by thread, or by block | kWholeBlock.
using Knowledge = std::map<uint64_t, uint32_t>;
constexpr uint64_t kWholeBlock = uint64_t{1} << 40;
void learn(Knowledge& into, const Knowledge& from);

struct BlockOrder {
  uint32_t index = 0;
  uint32_t barrier = 0;  // every thread knows what the block did before this clock
  Knowledge acquired;
};

class WarpOrder {
 public:
  WarpOrder() = default;
  void start(BlockOrder* block, uint32_t first_thread, uint32_t launch_clock);
  uint32_t who(int lane) const { return first_ + uint32_t(lane); }
  uint32_t clock(int lane) const { return clocks_[lane]; }
  Access access(int lane, bool strong) const { return {who(lane), clocks_[lane], strong}; }
  bool knows(int lane, const Access& access) const;

  uint32_t latest() const;
  void set_clocks(uint32_t clock) { clocks_.fill(clock); }
  void synchronize(Lanes lanes);  // bar.warp.sync
  // Of a release and an acquire by one lane, and of the fences that turn relaxed accesses into
  // them.
  Knowledge release(int lane);
  void acquire(int lane, const Knowledge& knowledge);
  void fence(int lane);
  const Knowledge* fenced(int lane) const;
  void read_relaxed(int lane, const Knowledge& knowledge);
  void give_to_block();  // what the lanes have acquired, at a barrier

 private:
  struct LaneKnowledge {
    Knowledge acquired, fenced, pending;
  };
  using Known = std::array<std::array<uint32_t, kWarp>, kWarp>;
  std::array<LaneKnowledge, kWarp>& extra();

  BlockOrder* block_ = nullptr;
  uint32_t first_ = 0, launch_clock_ = 0;
  std::array<uint32_t, kWarp> clocks_{};
  std::unique_ptr<Known> known_;  // before the first bar.warp.sync: none
  std::unique_ptr<std::array<LaneKnowledge, kWarp>>
      extra_;  // before the first fence or acquire: none
};

}  // namespace ptx
