// The backend "openvino": OpenVINO through its C interface, which is loaded when the first engine
// is opened and never linked. Behaves as anoco_edge/engines/openvino.py does, with one difference:
// compiled graphs are not kept on disk, every open compiles.
//
// Where its library is looked for: anoco_model.library, else the environment's
// ANOCO_OPENVINO_LIBRARY (each a file, or a folder with libopenvino_c.so in it), else where the
// system looks for libraries.
#pragma once

#include "anoco_backend.h"

namespace anoco {

// In a library that was built without OpenVINO's headers, its `open` says so.
anoco_backend openvino_backend();

}  // namespace anoco
