// In place of the backend where TensorRT's headers were not found when the library was built.
#include <cstdio>

#include "tensorrt.hpp"

namespace anoco {
namespace {

anoco_status open(void*, const anoco_model*, void**, char* error, size_t error_size) {
  std::snprintf(error, error_size,
                "this library was built without TensorRT: build it with -DANOCO_TENSORRT_INCLUDE="
                "(a folder that holds NvInfer.h), or use another backend");
  return ANOCO_NO_BACKEND;
}

anoco_status create_request(void*, void**, char*, size_t) { return ANOCO_NO_BACKEND; }

anoco_status run(void*, const uint8_t*, const float**, char*, size_t) { return ANOCO_NO_BACKEND; }

void nothing(void*) {}

}  // namespace

anoco_backend tensorrt_backend() {
  return {sizeof(anoco_backend), 0,       "tensorrt", nullptr, open,   nothing,
          create_request,        nothing, run,        nullptr, nullptr};
}

}  // namespace anoco
