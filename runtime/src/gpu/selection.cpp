#include "gpu/selection.hpp"

#include <algorithm>

namespace anoco::gpu {

template <class Each>
void Selection::each_buffer(int64_t patches, Each&& each) {
  each(&Selection::counted_here_, patches);
  each(&Selection::rows_here_, patches);
  each(&Selection::places_here_, patches);
  each(&Selection::counted_, patches);
  each(&Selection::rows_, patches);
  each(&Selection::places_, patches);
}

Selection::Selection(const SharedDevice& device, int64_t patches) {
  each_buffer(patches, DeviceAllocator{*this, device});
}

int64_t Selection::bytes(int64_t patches) {
  return count_bytes([&](auto& each) { each_buffer(patches, each); });
}

void Selection::set(const uint8_t* counted, CUstream stream) {
  const int64_t patches = counted_here_.size();
  if (count_ > 0 && std::equal(counted, counted + patches, counted_here_.data())) return;
  std::copy_n(counted, patches, counted_here_.data());
  int64_t count = 0;
  for (int64_t p = 0; p < patches; ++p) {
    places_here_[p] = counted[p] != 0 ? int(count) : -1;
    if (counted[p] != 0) rows_here_[count++] = int(p);
  }
  count_ = 0;  // until they are there
  upload(counted_here_, counted_, patches, stream);
  upload(rows_here_, rows_, count, stream);
  upload(places_here_, places_, patches, stream);
  count_ = count;
}

}  // namespace anoco::gpu
