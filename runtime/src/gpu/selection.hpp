// The patches of a picture that are scored, as lists by which the device gathers and scatters.
#pragma once

#include "gpu/device_allocator.hpp"

namespace anoco::gpu {

class Selection {
 public:
  Selection() = default;
  Selection(const SharedDevice& device, int64_t patches);
  static int64_t bytes(int64_t patches);

  // `scored` has one byte per patch, and at least one of them is 1. Enqueues the lists if they
  // changed; earlier work of the stream must be done.
  void set(const uint8_t* scored, CUstream stream);

  int64_t count() const { return count_; }
  int64_t patch(int64_t row) const { return host_rows_[row]; }
  bool all() const { return count_ == host_scored_.size(); }
  // On the device:
  const uint8_t* scored() const { return scored_.data(); }
  const int* rows() const { return rows_.data(); }      // the patch of each row
  const int* places() const { return places_.data(); }  // the row of each patch, -1: none

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(int64_t patches, Each&& each);

  int64_t count_ = 0;
  PinnedBuffer<uint8_t> host_scored_;
  PinnedBuffer<int> host_rows_, host_places_;
  DeviceBuffer<uint8_t> scored_;
  DeviceBuffer<int> rows_, places_;
};

}  // namespace anoco::gpu
