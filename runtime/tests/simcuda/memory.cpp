// Memory of the simulated device and page-locked memory: pages that are protected from everybody
// who must not touch them at the moment.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "world.hpp"

namespace simcuda {
namespace {

constexpr size_t kDeviceAlignment = 256, kHostAlignment = 64;
constexpr size_t kMostFreed = 4000;
constexpr size_t kMostFresh = 64 << 10;
constexpr int kFresh = 0xff;   // fills new memory, so that it reads as NaN
constexpr int kBeyond = 0xa5;  // fills the bytes behind an allocation of the device

size_t page() { return size_t(sysconf(_SC_PAGESIZE)); }

size_t rounded(size_t size, size_t to) { return (size + to - 1) / to * to; }

}  // namespace

// Reserves address space with a guard page on either side.
Allocation World::reserve(Context* context, size_t bytes, Place place) {
  Allocation made{};
  made.host = place == Place::host || place == Place::mapped;
  made.managed = place == Place::managed;
  made.context = context;
  made.size = bytes;
  const size_t whole = rounded(bytes, made.host ? kHostAlignment : kDeviceAlignment);
  made.pages_size = rounded(whole, page());
  made.map_size = made.pages_size + 2 * page();
  made.map = mmap(nullptr, made.map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made.map == MAP_FAILED) return made;
  made.pages = reinterpret_cast<uintptr_t>(made.map) + page();
  // Places the memory at the end of its pages, so that an overrun is found at once.
  made.address = made.pages + made.pages_size - whole;
  return made;
}

uintptr_t World::add(const Allocation& made) {
  const auto [it, added] = live_.emplace(made.address, made);
  it->second.number = next_number_++;
  account(made, 1);
  protect(it->second);
  return made.address;
}

void World::account(const Allocation& allocation, int sign) {
  if (allocation.here != 0) return;  // it is page-locked memory, and counted as such
  uint64_t& bytes = allocation.host ? host_bytes_ : device_bytes_;
  bytes = sign > 0 ? bytes + allocation.size : bytes - allocation.size;
  peak_ = std::max(peak_, device_bytes_);
}

uintptr_t World::allocate(Context* context, size_t bytes, Place place) {
  if (place != Place::host && place != Place::mapped && device_bytes_ + bytes > memory) return 0;
  Allocation made = reserve(context, bytes, place);
  if (made.map == MAP_FAILED) return 0;
  const auto body = reinterpret_cast<void*>(made.pages);
  if (place == Place::mapped) {
    const int file = memfd_create("simcuda", 0);
    if (file < 0 || ftruncate(file, off_t(made.pages_size)) != 0) misuse("memfd_create failed");
    Allocation there = reserve(context, made.pages_size, Place::device);
    for (const uintptr_t pages : {made.pages, there.pages})
      mmap(reinterpret_cast<void*>(pages), made.pages_size, PROT_NONE, MAP_SHARED | MAP_FIXED, file,
           0);
    close(file);
    there.size = bytes;
    there.address = there.pages + (made.address - made.pages);
    there.here = made.address;
    made.there = add(there);
  }
  mprotect(body, made.pages_size, PROT_READ | PROT_WRITE);
  // Fills only the beginning of a large allocation, to be quick.
  std::memset(reinterpret_cast<void*>(made.address), kFresh, std::min(bytes, kMostFresh));
  const uintptr_t end = made.address + bytes;
  std::memset(reinterpret_cast<void*>(end), kBeyond, made.pages + made.pages_size - end);
  return add(made);
}

void World::free(uintptr_t address, bool host, const char* call) {
  const auto it = live_.find(address);
  if (it == live_.end())
    misuse(std::string(call) +
           (was_freed(address) ? ": it was freed before" : ": nothing was allocated there"));
  const Allocation& gone = it->second;
  if (gone.host != host || gone.here != 0) misuse(std::string(call) + ": memory of the other kind");
  if (gone.reading + gone.writing > 0)
    misuse(std::string(call) + ": work that uses it is still under way");
  if (gone.there != 0) {
    const Allocation& there = live_.at(gone.there);
    if (there.reading + there.writing > 0)
      misuse(std::string(call) + ": a kernel that uses it is still under way");
    unmap(there);
  }
  unmap(gone);
}

// The addresses stay reserved for a long time, so that a use after free is found.
void World::unmap(const Allocation& allocation) {
  const Allocation gone = allocation;
  mmap(gone.map, gone.map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  account(gone, -1);
  freed_.emplace(gone.address, gone.size);
  graveyard_.push_back(gone);
  live_.erase(gone.address);
  if (graveyard_.size() <= kMostFreed) return;
  freed_.erase(graveyard_.front().address);
  munmap(graveyard_.front().map, graveyard_.front().map_size);
  graveyard_.pop_front();
}

void World::protect(const Allocation& allocation) const {
  int rights = PROT_READ | PROT_WRITE;
  const bool open = open_.count(allocation.address) != 0;
  if (allocation.host || (allocation.managed && !open))
    rights = allocation.writing > 0   ? PROT_NONE
             : allocation.reading > 0 ? PROT_READ
                                      : PROT_READ | PROT_WRITE;
  else if (!open)
    rights = PROT_NONE;
  mprotect(reinterpret_cast<void*>(allocation.pages), allocation.pages_size, rights);
}

const Allocation* World::find(uintptr_t address) const {
  auto it = live_.upper_bound(address);
  if (it == live_.begin()) return nullptr;
  --it;
  return it->second.holds(address, 1) ? &it->second : nullptr;
}

bool World::was_freed(uintptr_t address) const {
  auto it = freed_.upper_bound(address);
  return it != freed_.begin() && address - std::prev(it)->first < std::prev(it)->second;
}

Use World::use(const char* call, uintptr_t address, size_t bytes, bool host, bool write) const {
  const Allocation* found = find(address);
  const std::string where = std::string(call) + ": ";
  if (found == nullptr)
    misuse(where + (was_freed(address) ? "a pointer to memory that was freed"
                                       : "a pointer that leads nowhere"));
  if (found->host != host && !found->managed)
    misuse(where + (host ? "a pointer to the device" : "a pointer to the host") +
           " in the wrong place");
  if (!found->holds(address, bytes))
    misuse(where + std::to_string(bytes) + " bytes from " +
           std::to_string(address - found->address) + " on of an allocation that has " +
           std::to_string(found->size));
  return {found->number, address, write};
}

Allocation* World::owner(const Use& use) {
  auto* found = const_cast<Allocation*>(find(use.address));
  return found != nullptr && found->number == use.allocation ? found : nullptr;
}

// Nothing may write behind an allocation, even within its last page.
void World::check_ends(const Work& work) {
  for (const Use& use : work.uses) {
    const Allocation* used = owner(use);
    if (used == nullptr || used->host) continue;
    const uintptr_t end = used->pages + used->pages_size;
    const auto* byte = reinterpret_cast<const unsigned char*>(used->address + used->size);
    for (; reinterpret_cast<uintptr_t>(byte) < end; ++byte)
      if (*byte != kBeyond)
        misuse(work.call + " wrote behind the end of an allocation of " +
               std::to_string(used->size) + " bytes");
  }
}

}  // namespace simcuda
