// The calls of CUDA's driver that copy and fill.
#include <algorithm>
#include <cstring>

#include "world.hpp"

using namespace simcuda;

namespace {

World& world() { return World::get(); }

uintptr_t number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// If the host's side of a copy is page-locked, it is used when the copy runs, and nobody may touch
// it until then; otherwise CUDA makes a copy of it first.
bool page_locked(const void* host) {
  const Allocation* found = world().find(number(host));
  return found != nullptr && found->host;
}

void forbid_pageable(const Entry& entry) {
  ++world().pageable_copies;
  entry.forbid_capture();
}

CUresult copy_in(const Entry& entry, CUdeviceptr to, const void* from, size_t bytes,
                 Stream* stream) {
  Work work{entry.call(), {world().use(entry.call(), to, bytes, false, true)}, {}, {}, {}};
  if (page_locked(from)) {
    work.uses.push_back(world().use(entry.call(), number(from), bytes, true, false));
    work.run = [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); };
  } else {
    forbid_pageable(entry);
    const auto* start = static_cast<const char*>(from);
    work.run = [to, aside = std::string(start, start + bytes)] {
      std::memcpy(reinterpret_cast<void*>(to), aside.data(), aside.size());
    };
  }
  return world().enqueue(stream, std::move(work));
}

CUresult copy_out(const Entry& entry, void* to, CUdeviceptr from, size_t bytes, Stream* stream) {
  Work work{entry.call(), {world().use(entry.call(), from, bytes, false, false)}, {}, {}, {}};
  work.run = [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); };
  const bool locked = page_locked(to);
  if (locked)
    work.uses.push_back(world().use(entry.call(), number(to), bytes, true, true));
  else
    forbid_pageable(entry);
  const CUresult code = world().enqueue(stream, std::move(work));
  if (!locked) world().finish(stream);
  return code;
}

CUresult copy_across(const Entry& entry, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                     Stream* stream) {
  return world().enqueue(stream, {entry.call(),
                                  {world().use(entry.call(), from, bytes, false, false),
                                   world().use(entry.call(), to, bytes, false, true)},
                                  [=] {
                                    std::memmove(reinterpret_cast<void*>(to),
                                                 reinterpret_cast<const void*>(from), bytes);
                                  },
                                  {},
                                  {}});
}

}  // namespace

extern "C" {

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  const Entry entry("cuMemcpyHtoDAsync_v2");
  if (entry.code() != kSuccess) return entry.code();
  return copy_in(entry, to, from, bytes, world().stream(entry.call(), stream));
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  const Entry entry("cuMemcpyDtoHAsync_v2");
  if (entry.code() != kSuccess) return entry.code();
  return copy_out(entry, to, from, bytes, world().stream(entry.call(), stream));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  const Entry entry("cuMemcpyDtoDAsync_v2");
  if (entry.code() != kSuccess) return entry.code();
  return copy_across(entry, to, from, bytes, world().stream(entry.call(), stream));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  const Entry entry("cuMemcpyHtoD_v2");
  if (entry.code() != kSuccess) return entry.code();
  Stream* stream = world().stream(entry.call(), nullptr);
  const CUresult code = copy_in(entry, to, from, bytes, stream);
  world().finish(stream);
  return code;
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  const Entry entry("cuMemcpyDtoH_v2");
  if (entry.code() != kSuccess) return entry.code();
  Stream* stream = world().stream(entry.call(), nullptr);
  const CUresult code = copy_out(entry, to, from, bytes, stream);
  world().finish(stream);
  return code;
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  const Entry entry("cuMemcpyDtoD_v2");
  if (entry.code() != kSuccess) return entry.code();
  return copy_across(entry, to, from, bytes, world().stream(entry.call(), nullptr));
}

CUresult cuMemcpy2DAsync_v2(const Memcpy2D* given, CUstream stream) {
  const Entry entry("cuMemcpy2DAsync_v2");
  if (entry.code() != kSuccess) return entry.code();
  const Memcpy2D copy = *given;
  if (copy.srcMemoryType != kMemoryDevice || copy.dstMemoryType != kMemoryDevice)
    misuse("cuMemcpy2DAsync_v2: simulated between places on the device only");
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.WidthInBytes > copy.srcPitch ||
      copy.WidthInBytes > copy.dstPitch)
    return kInvalidValue;
  const uintptr_t from = copy.srcDevice + copy.srcY * copy.srcPitch + copy.srcXInBytes;
  const uintptr_t to = copy.dstDevice + copy.dstY * copy.dstPitch + copy.dstXInBytes;
  const size_t last = copy.Height - 1;
  return world().enqueue(
      world().stream(entry.call(), stream),
      {entry.call(),
       {world().use(entry.call(), from, last * copy.srcPitch + copy.WidthInBytes, false, false),
        world().use(entry.call(), to, last * copy.dstPitch + copy.WidthInBytes, false, true)},
       [=] {
         for (size_t y = 0; y < copy.Height; ++y)
           std::memcpy(reinterpret_cast<void*>(to + y * copy.dstPitch),
                       reinterpret_cast<const void*>(from + y * copy.srcPitch), copy.WidthInBytes);
       },
       {},
       {}});
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  const Entry entry("cuMemsetD32Async");
  if (entry.code() != kSuccess) return entry.code();
  if (to % 4 != 0) misuse("cuMemsetD32Async: an address that is no multiple of 4");
  return world().enqueue(world().stream(entry.call(), stream),
                         {entry.call(),
                          {world().use(entry.call(), to, 4 * count, false, true)},
                          [=] { std::fill_n(reinterpret_cast<unsigned*>(to), count, value); },
                          {},
                          {}});
}

}  // extern "C"
