// Versions, and the text of each status.
#include "anoco_edge.h"
#include "kernels/kernels.hpp"

extern "C" {

uint32_t anoco_abi_version(void) { return ANOCO_ABI_VERSION; }

const char* anoco_version(void) { return ANOCO_VERSION; }

const char* anoco_kernels(void) { return anoco::kernels().name; }

const char* anoco_status_text(anoco_status status) {
  switch (status) {
    case ANOCO_OK: return "ok";
    case ANOCO_INVALID_ARGUMENT: return "an argument is out of range";
    case ANOCO_BAD_FEATURES: return "features that must not be turned into a score";
    case ANOCO_OUT_OF_MEMORY: return "there is not enough memory";
    case ANOCO_NO_THREADS: return "a thread could not be started";
    case ANOCO_CORRUPT: return "the bank's memory was changed while it was in use";
    case ANOCO_INTERNAL: return "a defect of the library";
    case ANOCO_BAD_BUNDLE: return "the bundle is missing, damaged or of another version";
    case ANOCO_NO_PRODUCT: return "the bundle has no such product";
    case ANOCO_BAD_PICTURE: return "a picture that cannot be inspected";
    case ANOCO_NO_BACKEND: return "the engine or its device is not on this machine";
    case ANOCO_PARITY: return "the engine does not compute what the bundle expects";
    case ANOCO_ENGINE: return "the engine failed";
    case ANOCO_STORAGE: return "a file cannot be written";
    case ANOCO_UNSUPPORTED: return "only the Python tools can do this";
    case ANOCO_NO_RESULT: return "there is no result";
    default: return "unknown status";
  }
}

}  // extern "C"
