// The kernels of runtime/cuda, compiled for devices and embedded into the library by
// cuda/compile.py.
#pragma once

#include <cstddef>
#include <utility>

namespace anoco {

struct DeviceCode {
  const char* name;  // "sm_87", "compute_75"
  int capability;    // 87: of 8.7
  bool ptx;          // to be compiled by the driver, for this capability or a later one
  int cuda_version;  // of the compiler, as cuDriverGetVersion counts: 12060
  const unsigned char* data;
  size_t size;
};

// Returns the embedded code in no particular order; there is none if the library was built without
// a CUDA compiler.
std::pair<const DeviceCode*, size_t> device_codes();

}  // namespace anoco
