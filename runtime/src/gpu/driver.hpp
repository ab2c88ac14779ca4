// CUDA's driver and cuBLAS, which are loaded when they are first used.
#pragma once

#include <string>

#include "gpu/calls.hpp"
#include "gpu/cuda_types.hpp"

namespace anoco::gpu {

[[noreturn]] void fail_driver_call(const char* name, int code);
[[noreturn]] void fail_cublas_call(const char* name, int code);

// Tells whether CUDA refuses all further work in this context after this code.
bool is_sticky(CUresult code);

struct Driver {
#define ANOCO_MEMBER(name, ...) Call<fail_driver_call, __VA_ARGS__> name{#name};
  ANOCO_DRIVER_CALLS(ANOCO_MEMBER)
#undef ANOCO_MEMBER
  int version = 0;         // such as 12060
  bool simulated = false;  // the simulated driver of the tests
  Library library = nullptr;
};

struct Cublas {
#define ANOCO_MEMBER(name, ...) Call<fail_cublas_call, __VA_ARGS__> name{#name};
  ANOCO_CUBLAS_CALLS(ANOCO_MEMBER)
#undef ANOCO_MEMBER
};

// Fail with ANOCO_NO_BACKEND and say what is missing. If the driver could not be loaded, the next
// call tries again.
const Driver& driver();
const Cublas& cublas();

// Returns the cuBLAS library that fits a driver: that of CUDA 13 does not run on JetPack 6 (driver
// 12.6).
const char* cublas_file(int driver_version);

}  // namespace anoco::gpu
