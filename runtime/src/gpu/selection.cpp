#include "gpu/selection.hpp"

#include <algorithm>

namespace anoco::gpu {

template <class Each>
void Selection::each_buffer(int64_t patches, Each&& each) {
  each(&Selection::host_scored_, patches);
  each(&Selection::host_rows_, patches);
  each(&Selection::host_places_, patches);
  each(&Selection::scored_, patches);
  each(&Selection::rows_, patches);
  each(&Selection::places_, patches);
}

Selection::Selection(const SharedDevice& device, int64_t patches) {
  each_buffer(patches, DeviceAllocator{*this, device});
}

int64_t Selection::bytes(int64_t patches) {
  return count_bytes([&](auto& each) { each_buffer(patches, each); });
}

void Selection::set(const uint8_t* scored, CUstream stream) {
  const int64_t patches = host_scored_.size();
  if (count_ > 0 && std::equal(scored, scored + patches, host_scored_.data())) return;
  std::copy_n(scored, patches, host_scored_.data());
  int64_t count = 0;
  for (int64_t p = 0; p < patches; ++p) {
    host_places_[p] = scored[p] != 0 ? int(count) : -1;
    if (scored[p] != 0) host_rows_[count++] = int(p);
  }
  count_ = 0;  // until the copies are enqueued
  upload(host_scored_, scored_, patches, stream);
  upload(host_rows_, rows_, count, stream);
  upload(host_places_, places_, patches, stream);
  count_ = count;
}

}  // namespace anoco::gpu
