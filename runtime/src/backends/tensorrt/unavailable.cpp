#include "backends/unavailable.hpp"

#include "backends/tensorrt/tensorrt.hpp"

namespace anoco {

anoco_backend tensorrt_backend() {
  return unavailable_backend(
      "tensorrt",
      "this library was built without TensorRT: build it with "
      "-DANOCO_TENSORRT_INCLUDE=(a folder that holds NvInfer.h), or use another "
      "backend");
}

}  // namespace anoco
