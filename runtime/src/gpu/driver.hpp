// CUDA's driver, which is loaded when it is first used; cublas.hpp has cuBLAS.
#pragma once

#include <string>

#include "gpu/calls.hpp"
#include "gpu/cuda_types.hpp"

namespace anoco::gpu {

[[noreturn]] void fail_driver_call(const char* name, int code);

// What follows an error's name where the device's memory is full.
constexpr const char* kMoreMemory =
    ": the device's memory is full; lower memory_mb, thin the bank, or end what else uses it";

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

// Fails with ANOCO_NO_BACKEND and says what is missing; the next call tries again.
const Driver& driver();

}  // namespace anoco::gpu
