// The backend "openvino" runs OpenVINO through its C interface. The library is loaded when the
// first engine is opened and is never linked. It behaves as anoco_edge/engines/openvino.py does,
// with one difference: compiled graphs are not cached on disk, so every open compiles the graph.
//
// The library is looked for in anoco_model.library, then in the environment variable
// ANOCO_OPENVINO_LIBRARY (each names a file, or a folder that holds libopenvino_c.so), then where
// the system looks for libraries.
#pragma once

#include "anoco_backend.h"

namespace anoco {

// If the library was built without OpenVINO's headers, `open` fails and says so.
anoco_backend openvino_backend();

}  // namespace anoco
