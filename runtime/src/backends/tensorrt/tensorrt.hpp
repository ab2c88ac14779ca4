// The backend "tensorrt" runs a plan that `anoco-edge build` made on this device. TensorRT is
// loaded when the first engine is opened and is never linked. Pixels and features stay on the
// device if the detector scores there.
//
// The library is looked for in anoco_model.library, then in the environment variable
// ANOCO_TENSORRT_LIBRARY (each names a file, or a folder that holds libnvinfer.so), then where the
// system looks for libraries. It must have the major version that this file was compiled with.
//
// This backend has not yet run on a device, because no machine that built it had one.
#pragma once

#include "anoco_backend.h"

namespace anoco {

// If the library was built without TensorRT's headers, `open` fails and says so.
anoco_backend tensorrt_backend();

}  // namespace anoco
