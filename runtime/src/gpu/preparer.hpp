// Preprocesses a picture on the device, as picture/prepare.hpp does on the host.
#pragma once

#include "anoco_edge.h"
#include "bundle/schema.hpp"
#include "gpu/device_allocator.hpp"
#include "picture/placement.hpp"
#include "picture/resample_weights.hpp"

namespace anoco::gpu {

class DevicePreparer {
 public:
  DevicePreparer() = default;
  // Takes all memory, for pictures of up to max_width x max_height.
  DevicePreparer(SharedDevice device, const InputContract& contract, int64_t max_width,
                 int64_t max_height);
  static int64_t bytes(const InputContract& contract, int64_t max_width, int64_t max_height);

  // Enqueues the preprocessing, which writes contract.height x contract.width x 3 bytes of RGB. A
  // picture on the host is copied first, so the caller may change it at once. Earlier work of the
  // stream must be done.
  Placement prepare(const anoco_image& image, uint8_t* out, CUstream stream);

 private:
  // The resampling table of one axis on the device: for each output its first input, followed by
  // the weights.
  class Table {
   public:
    Table() = default;
    Table(const SharedDevice& device, int64_t inputs, int64_t outputs);
    static int64_t bytes(int64_t inputs, int64_t outputs);
    void set(int64_t inputs, int64_t outputs, CUstream stream);
    const int* first() const { return device_numbers_.data(); }
    const int* weights() const { return device_numbers_.data() + resample_.outputs(); }
    int reach() const { return int(resample_.reach()); }

   private:
    template <class Each>
    static void each_buffer(int64_t inputs, int64_t outputs, Each&& each);

    int64_t inputs_ = 0, outputs_ = 0;  // of the table on the device
    ResampleWeights<int32_t> resample_;
    PinnedBuffer<int32_t> host_numbers_;
    DeviceBuffer<int32_t> device_numbers_;
  };
  // Pixels on the device, as a kernel takes them.
  struct Source {
    const uint8_t *data, *chroma;
    int format;
    int64_t stride, chroma_stride;
  };

  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(const InputContract& contract, int64_t max_width, int64_t max_height,
                          Each&& each);
  Source fetch(const anoco_image& image, CUstream stream);
  void resize(const Source& from, const anoco_image& image, const Placement& to, uint8_t* out,
              CUstream stream);

  SharedDevice device_;
  InputContract contract_;
  Table across_, down_;
  PinnedBuffer<uint8_t> host_picture_;
  DeviceBuffer<uint8_t> device_picture_,
      between_;  // the picture, and the result of the first of two passes
};

}  // namespace anoco::gpu
