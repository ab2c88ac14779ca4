// A function of a library that is loaded at run time. Calling it throws the Failure that says which
// call failed, with what, and what to do.
#pragma once

#include <dlfcn.h>

#include <string>

#include "failure.hpp"

namespace anoco::gpu {

// A loaded library; it is never unloaded, since CUDA leaves threads behind.
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
  // For what is cleaned up, and where a code is no failure.
  int unchecked(Arguments... arguments) const noexcept { return function_(arguments...); }

 private:
  const char* name_;
  int (*function_)(Arguments...) = nullptr;
};

}  // namespace anoco::gpu
