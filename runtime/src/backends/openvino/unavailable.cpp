#include "backends/unavailable.hpp"

#include "backends/openvino/openvino.hpp"

namespace anoco {

anoco_backend openvino_backend() {
  return unavailable_backend(
      "openvino",
      "this library was built without OpenVINO: build it with "
      "-DANOCO_OPENVINO_INCLUDE=(a folder that holds openvino/c/openvino.h), or "
      "use another backend");
}

}  // namespace anoco
