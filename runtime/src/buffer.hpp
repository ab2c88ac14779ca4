// An array that is allocated once, aligned for vector instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace anoco {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count)
      : data_(static_cast<T*>(::operator new(static_cast<size_t>(count) * sizeof(T), kAlignment))),
        count_(count) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) ::operator delete(data_, kAlignment);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return count_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  T* data_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace anoco
