// CUDA's driver and cuBLAS, loaded when they are first asked for.
#pragma once

#include <string>

#include "gpu/calls.hpp"
#include "gpu/cuda_types.hpp"

namespace anoco::gpu {

[[noreturn]] void fail_driver_call(const char* name, int code);
[[noreturn]] void fail_cublas_call(const char* name, int code);

// Whether CUDA gives nothing more in this context once it gave this code.
bool is_sticky(CUresult code);

struct Driver {
#define ANOCO_MEMBER(name, ...) Call<fail_driver_call, __VA_ARGS__> name{#name};
  ANOCO_DRIVER_CALLS(ANOCO_MEMBER)
#undef ANOCO_MEMBER
  int version = 0;         // such as 12060
  bool simulated = false;  // the tests' own
  Library library = nullptr;
};

struct Cublas {
#define ANOCO_MEMBER(name, ...) Call<fail_cublas_call, __VA_ARGS__> name{#name};
  ANOCO_CUBLAS_CALLS(ANOCO_MEMBER)
#undef ANOCO_MEMBER
};

// Failure: ANOCO_NO_BACKEND, with what is missing. A driver that could not be loaded is tried again
// at the next call.
const Driver& driver();
const Cublas& cublas();

// The library that goes with a driver: CUDA 13 has one that JetPack 6 (driver 12.6) cannot run.
const char* cublas_file(int driver_version);

}  // namespace anoco::gpu
