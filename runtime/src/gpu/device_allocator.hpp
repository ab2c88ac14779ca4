// Takes the memory of a list (see buffer_list.hpp) on a device, page-locked, or on the host.
#pragma once

#include <type_traits>

#include "buffer_list.hpp"
#include "gpu/memory.hpp"

namespace anoco::gpu {

template <class Owner>
class DeviceAllocator {
 public:
  DeviceAllocator(Owner& owner, const SharedDevice& device) : owner_(owner), device_(device) {}

  template <template <class> class Memory, class T>
  void operator()(Memory<T> Owner::*buffer, int64_t count) {
    if (count > 0) owner_.*buffer = make<Memory<T>>(count);
  }
  template <class Part, class... Arguments>
  void part(Part Owner::*part, const Arguments&... arguments) {
    owner_.*part = make<Part>(arguments...);
  }
  template <class Part, class... Arguments>
  void part(std::optional<Part> Owner::*part, const Arguments&... arguments) {
    if constexpr (std::is_constructible_v<Part, const SharedDevice&, const Arguments&...>)
      (owner_.*part).emplace(device_, arguments...);
    else
      (owner_.*part).emplace(arguments...);
  }

 private:
  // What takes memory on the device is made with the device as its first argument.
  template <class Part, class... Arguments>
  Part make(const Arguments&... arguments) const {
    if constexpr (std::is_constructible_v<Part, const SharedDevice&, const Arguments&...>)
      return Part(device_, arguments...);
    else
      return Part(arguments...);
  }

  Owner& owner_;
  const SharedDevice& device_;
};

}  // namespace anoco::gpu
