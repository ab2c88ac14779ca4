#include "warp.hpp"

#include <algorithm>

namespace ptx {

void Warp::start(Block* block, uint32_t index, uint32_t threads) {
  const Launch& launch = *block->launch;
  const Kernel& kernel = *launch.kernel;
  block_ = block;
  index_ = index;
  threads_ = std::min(threads - index * kWarp, uint32_t{kWarp});
  constants_ = reinterpret_cast<const char*>(kernel.constants.data());
  registers_.resize(kernel.register_bytes);
  splits_ = {{0, threads_ == kWarp ? kAllLanes : (1u << threads_) - 1, false}};
  order.start(&block->order, index * kWarp, launch.clock);
  for (auto& each : copies) each.clear();
  local_.assign(kernel.local_bytes * kWarp, char(0x5a));
  local_regions_.resize(kernel.local_bytes == 0 ? 0 : kWarp);
  for (Region& region : local_regions_) {
    region.bytes = kernel.local_bytes;
    region.states.assign(kernel.local_bytes, ByteState::unwritten);
  }
  for (const auto& [special, place] : kernel.specials)
    for (int lane = 0; lane < kWarp; ++lane) {
      const uint32_t thread = index * kWarp + uint32_t(lane), bit = 1u << lane;
      const Size &b = launch.block, &g = launch.grid, &at = block->at;
      const uint32_t values[] = {thread % b.x,
                                 thread / b.x % b.y,
                                 thread / (b.x * b.y),
                                 b.x,
                                 b.y,
                                 b.z,
                                 at.x,
                                 at.y,
                                 at.z,
                                 g.x,
                                 g.y,
                                 g.z,
                                 uint32_t(lane),
                                 index,
                                 bit,
                                 bit - 1,
                                 bit | (bit - 1),
                                 ~(bit | (bit - 1)),
                                 ~(bit - 1)};
      put(registers_.data() + place, lane, values[size_t(special)]);
    }
}

Lanes Warp::lanes() const {
  Lanes all = 0;
  for (const Split& split : splits_) all |= split.lanes;
  return all;
}

bool Warp::can_run() const {
  return std::any_of(splits_.begin(), splits_.end(), [](const Split& s) { return !s.waiting; });
}

// The split that is furthest behind, so that lanes meet again after a branch; now and then another.
size_t Warp::choose() {
  size_t best = splits_.size(), others = 0;
  for (size_t k = 0; k < splits_.size(); ++k) {
    if (splits_[k].waiting) continue;
    ++others;
    if (best == splits_.size() || splits_[k].at < splits_[best].at) best = k;
  }
  if (others < 2 || launch().random.below(8) != 0) return best;
  for (size_t skip = launch().random.below(uint32_t(others)), k = 0;; ++k)
    if (!splits_[k].waiting && skip-- == 0) return k;
}

// Lanes that are at the same instruction again go on together.
void Warp::merge() {
  for (size_t k = 0; k < splits_.size(); ++k)
    for (size_t other = splits_.size() - 1; other > k; --other) {
      if (splits_[k].at != splits_[other].at) continue;
      splits_[k].lanes |= splits_[other].lanes;
      splits_[k].waiting = false;  // it looks again whether all are there
      splits_.erase(splits_.begin() + std::ptrdiff_t(other));
    }
}

void Warp::run(uint32_t steps) {
  while (steps > 0 && can_run()) {
    const size_t chosen = choose();
    if (splits_.size() == 1) {
      for (; steps > 0 && splits_.size() == 1 && !splits_[0].waiting; --steps) step(splits_[0]);
      continue;
    }
    uint32_t next = ~0u;  // where others are
    for (size_t k = 0; k < splits_.size(); ++k)
      if (k != chosen && splits_[k].at > splits_[chosen].at) next = std::min(next, splits_[k].at);
    const size_t before = splits_.size();
    uint32_t left = 16;
    do {
      step(splits_[chosen]);
      --steps;
    } while (steps > 0 && --left > 0 && splits_.size() == before && !splits_[chosen].waiting &&
             splits_[chosen].at < next);
    merge();
  }
}

void Warp::step(Split& split) {
  const Kernel& kernel = *launch().kernel;
  const Instruction& i = kernel.code[split.at];
  Lanes lanes = split.lanes;
  if (i.predicate.given) lanes &= bits(i.predicate);
  if (i.kind == Kind::plain) {
    ++split.at;
    if (lanes == 0) return;
    launch().executed[size_t(&i - kernel.code.data())] += uint64_t(__builtin_popcount(lanes));
    i.run(*this, i, lanes);
    return;
  }
  const Lanes rest = split.lanes & ~lanes;
  if (i.kind == Kind::branch) {
    launch().executed[size_t(&i - kernel.code.data())] += uint64_t(__builtin_popcount(split.lanes));
    if (lanes == 0) {
      ++split.at;
    } else if (rest == 0) {
      split.at = i.target;
    } else {
      split.lanes = rest;
      ++split.at;
      splits_.push_back({i.target, lanes, false});
    }
    return;
  }
  if (lanes == 0) {
    ++split.at;
    return;
  }
  if (rest != 0) {  // those that the predicate excludes go on
    split.lanes = lanes;
    splits_.push_back({split.at + 1, rest, false});
    return;
  }
  if (i.kind == Kind::table) {
    const int lane = __builtin_ctz(lanes);
    const uint32_t index = get<uint32_t>(in(i.operands[0]), lane);
    if (index >= i.targets.size()) fault(i, lane, "an index outside of the table of a branch");
    Lanes same = 0;
    each(lanes, [&](int l) {
      if (get<uint32_t>(in(i.operands[0]), l) == index) same |= 1u << l;
    });
    split.lanes = lanes & ~same;
    splits_.push_back({i.targets[index], same, false});
    splits_.erase(
        std::remove_if(splits_.begin(), splits_.end(), [](const Split& s) { return s.lanes == 0; }),
        splits_.end());
  } else if (i.kind == Kind::end) {
    splits_.erase(splits_.begin() + (&split - splits_.data()));
  } else if (i.kind == Kind::barrier) {
    split.waiting = true;
  } else {
    come_together(split, i, lanes);
  }
}

// The lanes that must be at the instruction together with this one.
Lanes Warp::needed(const Instruction& i, int lane) const {
  const Operand& mask = i.operands[kMask];
  return mask.given ? get<uint32_t>(in(mask), lane) : kAllLanes;
}

void Warp::come_together(Split& split, const Instruction& i, Lanes lanes) {
  const int first = __builtin_ctz(lanes);
  const Lanes mask = needed(i, first);
  Lanes same = 0;
  each(lanes, [&](int lane) {
    if (needed(i, lane) == mask) same |= 1u << lane;
  });
  if ((same & ~mask) != 0)
    fault(i, __builtin_ctz(same & ~mask), "comes with a mask that does not name its own lane");
  if ((mask & ~this->lanes()) != 0)
    fault(i, first, "comes with a mask that names lanes that have ended or never were");
  if (same != mask && (lanes & mask & ~same) != 0)
    fault(i, first, "meets lanes of its warp that have another mask");
  if (same != mask) {
    split.waiting = true;
    return;
  }
  if (same != lanes) {  // others with another mask stay behind
    split.lanes = lanes & ~same;
    splits_.push_back({split.at + 1, same, false});
  } else {
    ++split.at;
  }
  launch().executed[size_t(&i - launch().kernel->code.data())] +=
      uint64_t(__builtin_popcount(same));
  i.run(*this, i, same);
}

const Instruction* Warp::at_barrier() const {
  if (splits_.size() != 1 || !splits_[0].waiting) return nullptr;
  const Instruction& i = block_->launch->kernel->code[splits_[0].at];
  return i.kind == Kind::barrier ? &i : nullptr;
}

void Warp::pass_barrier() {
  const Instruction& i = *at_barrier();
  launch().executed[size_t(&i - launch().kernel->code.data())] +=
      uint64_t(__builtin_popcount(splits_[0].lanes));
  splits_[0].waiting = false;
  ++splits_[0].at;
}

// For a message: which lanes wait where.
std::string Warp::describe() const {
  std::string out;
  for (const Split& split : splits_) {
    const Instruction& i = block_->launch->kernel->code[split.at];
    const uint32_t thread = index_ * kWarp + uint32_t(__builtin_ctz(split.lanes));
    out += "\n  " + std::to_string(__builtin_popcount(split.lanes)) + " lanes from thread " +
           std::to_string(thread) + " on wait at line " + std::to_string(i.line);
  }
  return out;
}

uint64_t Warp::address(const Instruction& i, int lane) const {
  if (!i.address.given) return uint64_t(i.offset);
  const char* base = in(i.address);
  return (i.wide_address ? get<uint64_t>(base, lane) : get<uint32_t>(base, lane)) +
         uint64_t(i.offset);
}

char* Warp::reach(const Instruction& i, int lane, Space space, uint64_t address, uint32_t bytes,
                  const Touch& touch) {
  if (space == Space::generic) {
    space = address >= kLocalWindow    ? Space::local
            : address >= kSharedWindow ? Space::shared
                                       : Space::global;
    address -= space == Space::local ? kLocalWindow : space == Space::shared ? kSharedWindow : 0;
  }
  const auto doing = [&](const char* what) {
    char text[120];
    std::snprintf(text, sizeof text, "%s %u bytes at %#llx of %s",
                  touch.writes ? "writes" : "reads", bytes,
                  static_cast<unsigned long long>(address), what);
    return std::string(text);
  };
  Region* region = nullptr;
  char* first = nullptr;  // of the region, in this process
  if (space == Space::global) {
    Region*& last = launch().last[size_t(&i - launch().kernel->code.data())];
    if (last == nullptr || !last->holds(address, bytes))
      last = launch().memory->find(address, bytes);
    region = last;
    first = region == nullptr ? nullptr : reinterpret_cast<char*>(region->start);
  } else if (space == Space::shared) {
    region = &block_->shared_region;
    first = block_->shared.data();
  } else if (!local_regions_.empty()) {
    region = &local_regions_[size_t(lane)];
    first = local_.data() + size_t(lane) * region->bytes;
  }
  const char* const name = space == Space::global   ? "global memory"
                           : space == Space::shared ? "shared memory"
                                                    : "local memory";
  if (region == nullptr || !region->holds(address, bytes))
    fault(i, lane, doing(name) + ", outside of any allocation");
  if ((address & (bytes - 1)) != 0) fault(i, lane, doing(name) + ", which is not aligned");
  const size_t offset = address - region->start;
  if (!region->states.empty()) {
    const char* wrong = find_state(*region, offset, bytes, touch);
    if (wrong != nullptr) fault(i, lane, doing(name) + " " + wrong);
    if (touch.writes)
      std::fill_n(region->states.begin() + std::ptrdiff_t(offset), bytes, ByteState::written);
  }
  if (space == Space::local) return first + offset;
  const Access* other = find_race(*region, offset, bytes, touch, order, lane);
  if (other != nullptr)
    fault(i, lane,
          doing(name) + ": a race with thread " +
              std::to_string(other->who & ((1u << kThreadBits) - 1)) + " of block " +
              std::to_string(other->who >> kThreadBits) + ", which nothing orders before it");
  return first + offset;
}

void Warp::fault(const Instruction& i, int lane, const std::string& what) const {
  throw Fault(block_->launch->where(*block_, i) + ", thread " +
              std::to_string(index_ * kWarp + uint32_t(lane)) + " " + what);
}

}  // namespace ptx
