#include "order.hpp"

#include <algorithm>

namespace ptx {

void Access::join(const Access& other) {
  if (clock == 0 || (who == other.who && width == lane)) {
    *this = other;
    return;
  }
  const uint32_t all = width == grid || who >> kThreadBits != other.who >> kThreadBits ? grid
                       : width == block || who / kWarp != other.who / kWarp            ? block
                                                                                       : warp;
  const uint32_t latest = std::max<uint32_t>(clock, other.clock);
  who = other.who;
  clock = latest & 0xfffffffu;
  width = all & 3u;
  strong = strong & other.strong & 1u;
}

void learn(Knowledge& into, const Knowledge& from) {
  for (const auto& [key, clock] : from) {
    uint32_t& known = into[key];
    known = std::max(known, clock);
  }
}

void WarpOrder::start(BlockOrder* block, uint32_t first_thread, uint32_t launch_clock) {
  block_ = block;
  first_ = block->index << kThreadBits | first_thread;
  launch_clock_ = launch_clock;
  clocks_.fill(launch_clock);
  known_.reset();
  extra_.reset();
}

bool WarpOrder::knows(int lane, const Access& access) const {
  if (access.clock < launch_clock_) return true;
  const bool alone = access.width == Access::lane;
  if (alone && access.who == who(lane)) return true;
  const bool here = access.who >> kThreadBits == block_->index && access.width != Access::grid;
  if (here && access.clock < block_->barrier) return true;
  if (here && access.width <= Access::warp && known_ != nullptr &&
      access.who / kWarp == first_ / kWarp) {
    const auto& row = (*known_)[size_t(lane)];
    bool all = true;
    for (uint32_t k = 0; k < kWarp; ++k)
      if (!alone || k == access.who % kWarp)
        all = all && (access.clock < row[k] || (int(k) == lane));
    if (all) return true;
  }
  const auto in = [&](const Knowledge& table, uint64_t key) {
    const auto found = table.find(key);
    return found != table.end() && access.clock < found->second;
  };
  const auto acquired = [&](const Knowledge& table) {
    if (table.empty() || access.width == Access::grid) return false;
    return in(table, kWholeBlock | access.who >> kThreadBits) || (alone && in(table, access.who));
  };
  return acquired(block_->acquired) ||
         (extra_ != nullptr && acquired((*extra_)[size_t(lane)].acquired));
}

uint32_t WarpOrder::latest() const { return *std::max_element(clocks_.begin(), clocks_.end()); }

std::array<WarpOrder::LaneKnowledge, kWarp>& WarpOrder::extra() {
  if (extra_ == nullptr) extra_ = std::make_unique<std::array<LaneKnowledge, kWarp>>();
  return *extra_;
}

void WarpOrder::synchronize(Lanes lanes) {
  if (known_ == nullptr) known_ = std::make_unique<Known>();
  std::array<uint32_t, kWarp> all{};
  Knowledge acquired;
  uint32_t next = 0;
  for (Lanes rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    next = std::max(next, clocks_[size_t(lane)] + 1);
    for (size_t k = 0; k < kWarp; ++k) all[k] = std::max(all[k], (*known_)[size_t(lane)][k]);
    if (extra_ != nullptr) learn(acquired, (*extra_)[size_t(lane)].acquired);
  }
  for (size_t k = 0; k < kWarp; ++k)
    if ((lanes >> k & 1u) != 0) all[k] = next;
  for (Lanes rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    clocks_[size_t(lane)] = next;
    (*known_)[size_t(lane)] = all;
    if (!acquired.empty()) learn(extra()[size_t(lane)].acquired, acquired);
  }
}

Knowledge WarpOrder::release(int lane) {
  Knowledge out = block_->acquired;
  out[kWholeBlock | block_->index] = block_->barrier;
  if (known_ != nullptr)
    for (uint32_t k = 0; k < kWarp; ++k)
      out[first_ / kWarp * kWarp + k] = (*known_)[size_t(lane)][k];
  if (extra_ != nullptr) learn(out, (*extra_)[size_t(lane)].acquired);
  out[who(lane)] = ++clocks_[size_t(lane)];
  return out;
}

void WarpOrder::acquire(int lane, const Knowledge& knowledge) {
  learn(extra()[size_t(lane)].acquired, knowledge);
}

void WarpOrder::fence(int lane) {
  LaneKnowledge& own = extra()[size_t(lane)];
  learn(own.acquired, own.pending);
  own.pending.clear();
  own.fenced = release(lane);
}

const Knowledge* WarpOrder::fenced(int lane) const {
  return extra_ == nullptr || (*extra_)[size_t(lane)].fenced.empty()
             ? nullptr
             : &(*extra_)[size_t(lane)].fenced;
}

void WarpOrder::read_relaxed(int lane, const Knowledge& knowledge) {
  learn(extra()[size_t(lane)].pending, knowledge);
}

void WarpOrder::give_to_block() {
  if (extra_ == nullptr) return;
  for (const LaneKnowledge& lane : *extra_) learn(block_->acquired, lane.acquired);
}

}  // namespace ptx
