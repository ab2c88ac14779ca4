// A function of a library that is loaded at run time. A call that fails throws a Failure that names
// the call, its error code, and what to do.
#pragma once

#include <dlfcn.h>

#include <string>

#include "failure.hpp"

namespace anoco::gpu {

// A loaded library. It is never unloaded, because CUDA leaves threads running in it.
using Library = void*;

template <auto fails, class... Arguments>
class Call {
 public:
  explicit Call(const char* name) : name_(name) {}

  bool bind(Library library) {
    function_ = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name_));
    return function_ != nullptr;
  }
  const char* name() const { return name_; }

  void operator()(Arguments... arguments) const {
    if (const int code = function_(arguments...)) fails(name_, code);
  }
  // Returns the code in place of throwing, for cleaning up and where a code is not a failure.
  int unchecked(Arguments... arguments) const noexcept { return function_(arguments...); }

 private:
  const char* name_;
  int (*function_)(Arguments...) = nullptr;
};

}  // namespace anoco::gpu
