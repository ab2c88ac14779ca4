// Memory of the device, and page-locked memory of the host, which the device copies from and to
// directly.
#pragma once

#include <cstdint>
#include <utility>

#include "gpu/device.hpp"

namespace anoco::gpu {

// Memory of the device. The host must never read through its pointer.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(SharedDevice device, int64_t count) : device_(std::move(device)), count_(count) {
    if (count == 0) return;
    const DeviceChange change;
    const CurrentDevice current(*device_);
    driver().cuMemAlloc_v2(&address_, size_t(count) * sizeof(T));
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer() {
    if (address_ != 0)
      release_on_device(*device_, [&] { driver().cuMemFree_v2.unchecked(address_); });
  }

  T* data() const { return reinterpret_cast<T*>(address_); }
  CUdeviceptr address() const { return address_; }
  int64_t size() const { return count_; }
  size_t bytes() const { return size_t(count_) * sizeof(T); }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(address_, other.address_);
    std::swap(count_, other.count_);
  }

  SharedDevice device_;
  CUdeviceptr address_ = 0;
  int64_t count_ = 0;
};

inline CUdeviceptr address_of(const void* device_pointer) {
  return reinterpret_cast<CUdeviceptr>(device_pointer);
}

// Returns the address by which the current device reaches what a pointer of the caller leads to:
// its own memory, managed memory, or page-locked memory of the host, which it may know by another
// address. Memory that it cannot reach is a Failure (ANOCO_INVALID_ARGUMENT), because trying would
// make the device fail for good.
CUdeviceptr reachable(const Device& device, const void* pointer, const char* name);

// Page-locked memory of the host. What an asynchronous copy writes may be read after its stream was
// waited for.
template <class T>
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(SharedDevice device, int64_t count) : device_(std::move(device)), count_(count) {
    if (count == 0) return;
    const DeviceChange change;
    const CurrentDevice current(*device_);
    void* memory = nullptr;
    driver().cuMemHostAlloc(&memory, size_t(count) * sizeof(T), 0);
    data_ = static_cast<T*>(memory);
  }
  PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedBuffer() {
    if (data_ != nullptr)
      release_on_device(*device_, [&] { driver().cuMemFreeHost.unchecked(data_); });
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  int64_t size() const { return count_; }

 private:
  void swap(PinnedBuffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
  }

  SharedDevice device_;
  T* data_ = nullptr;
  int64_t count_ = 0;
};

// Copies `count` numbers from the start of one to the start of the other, in the order of the
// stream.
template <class T>
void upload(const PinnedBuffer<T>& from, const DeviceBuffer<T>& to, int64_t count,
            CUstream stream) {
  driver().cuMemcpyHtoDAsync_v2(to.address(), from.data(), size_t(count) * sizeof(T), stream);
}

template <class T>
void download(const T* from, PinnedBuffer<T>& to, int64_t count, CUstream stream) {
  driver().cuMemcpyDtoHAsync_v2(to.data(), address_of(from), size_t(count) * sizeof(T), stream);
}

}  // namespace anoco::gpu
