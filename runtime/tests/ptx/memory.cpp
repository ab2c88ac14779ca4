#include "memory.hpp"

#include <algorithm>

namespace ptx {

Memory::Memory() : tables_(std::make_unique<Tables>()) {}
Memory::~Memory() = default;

void Memory::add(const void* start, size_t bytes) {
  Region region;
  region.start = reinterpret_cast<uintptr_t>(start);
  region.bytes = bytes;
  tables_->regions[region.start] = region;
}

void Memory::remove(const void* start) {
  tables_->regions.erase(reinterpret_cast<uintptr_t>(start));
}

Region* Memory::Tables::find(uintptr_t address, size_t bytes) {
  auto after = regions.upper_bound(address);
  if (after == regions.begin()) return nullptr;
  Region& region = std::prev(after)->second;
  return region.holds(address, bytes) ? &region : nullptr;
}

void Region::refine(size_t offset, size_t count) {
  if (cells.empty()) {
    while (((offset | count | bytes) & ((size_t{1} << shift) - 1)) != 0 && shift > 0) --shift;
    cells.resize((bytes >> shift) + 1);
    return;
  }
  while (((offset | count) & ((size_t{1} << shift) - 1)) != 0) {
    --shift;
    std::vector<Cell> finer((bytes >> shift) + 1);
    for (size_t k = 0; k < finer.size(); ++k) finer[k] = cells[std::min(k / 2, cells.size() - 1)];
    cells = std::move(finer);
  }
}

const Access* find_race(Region& region, size_t offset, size_t bytes, const Touch& touch,
                        const WarpOrder& order, int lane) {
  if (region.cells.empty() || ((offset | bytes) & ((size_t{1} << region.shift) - 1)) != 0)
    region.refine(offset, bytes);
  Cell* const end = region.cells.data() + ((offset + bytes) >> region.shift);
  const Access self = order.access(lane, touch.strong);
  for (Cell* cell = region.cells.data() + (offset >> region.shift); cell < end; ++cell) {
    const bool both_strong = touch.strong && cell->write.strong != 0;
    if (cell->write.clock != 0 && !both_strong && !order.knows(lane, cell->write))
      return &cell->write;
    if (!touch.writes) {
      if (cell->read.who == self.who && cell->read.width == Access::lane)
        cell->read = self;
      else if (cell->read.clock == 0 || order.knows(lane, cell->read))
        cell->read = self;
      else
        cell->read.join(self);
      continue;
    }
    if (cell->read.clock != 0 && !(touch.strong && cell->read.strong != 0) &&
        !order.knows(lane, cell->read))
      return &cell->read;
    if (both_strong && !order.knows(lane, cell->write))
      cell->write.join(self);
    else
      cell->write = self;
    if (touch.reads && touch.strong) continue;  // other atomics do not wait for these reads
    cell->read = Access();
  }
  return nullptr;
}

const char* find_state(const Region& region, size_t offset, size_t bytes, const Touch& touch) {
  for (size_t k = offset; k < offset + bytes; ++k) {
    if (region.states[k] == ByteState::pending) return "that an unfinished cp.async writes";
    if (touch.reads && region.states[k] == ByteState::unwritten) return "that nobody has written";
  }
  return nullptr;
}

}  // namespace ptx
