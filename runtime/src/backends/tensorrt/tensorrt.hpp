// The backend "tensorrt": a plan that `anoco-edge build` made on this device, run by TensorRT,
// which is loaded when the first engine is opened and never linked. Pixels and features stay on the
// device where the detector scores there.
//
// Where its library is looked for: anoco_model.library, else the environment's
// ANOCO_TENSORRT_LIBRARY (each a file, or a folder with libnvinfer.so in it), else where the system
// looks for libraries. It must be of the major version that this was compiled with.
//
// Not yet run on a device: no machine that built it had one.
#pragma once

#include "anoco_backend.h"

namespace anoco {

// In a library that was built without TensorRT's headers, its `open` says so.
anoco_backend tensorrt_backend();

}  // namespace anoco
