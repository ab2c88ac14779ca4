/* anoco_backend.h - lets you add your own engine, which turns pixels into patch features.
 *
 * Fill in an anoco_backend, register it once, and name it in anoco_detector_options.backend. The
 * detector opens one engine and shares it between contexts; each context has a request of its
 * own, which it uses in one thread at a time. Callbacks must not throw; if one does, the call
 * that needed it fails with ANOCO_INTERNAL.
 *
 * A function that fails returns a status other than ANOCO_OK and writes one line that says what
 * is wrong into `error`, which has room for `error_size` bytes with the final zero. */
#ifndef ANOCO_BACKEND_H
#define ANOCO_BACKEND_H

#include "anoco_edge.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The backbone, and how to run it. It is valid during `open` only. */
typedef struct anoco_model {
  uint32_t struct_size;
  uint32_t threads; /* 0: all processors */
  const char* path; /* backbone.onnx, hash checked; other files of the graph lie beside it */
  int64_t width;    /* of the input: uint8 [1, height, width, 3], RGB */
  int64_t height;
  int64_t patches; /* of the output: float32 [1, patches, dim], in the order of the grid's rows */
  int64_t dim;
  const char* device;  /* as the caller named it; NULL: the backend chooses */
  const char* library; /* as the caller named it; NULL: search for it */
  uint32_t gpu;        /* number of the CUDA device, for backends that use one */
  uint32_t reserved;
  const char* identity; /* identifies the graph by the hashes of its files; plans are found by it */
  /* "bf16": compute in BF16 on the processor. NULL: in the precision of the graph. */
  const char* cpu_precision;
} anoco_model;

typedef struct anoco_backend {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;
  void* user; /* given to `open` */

  anoco_status (*open)(void* user, const anoco_model* model, void** engine, char* error,
                       size_t error_size);
  void (*close)(void* engine);

  /* Allocates all memory that `run` needs. */
  anoco_status (*create_request)(void* engine, void** request, char* error, size_t error_size);
  void (*destroy_request)(void* request);

  /* Computes the features of one picture. `*features` points to the request's own memory, which
   * is valid until the request runs again or is destroyed. */
  anoco_status (*run)(void* request, const uint8_t* pixels, const float** features, char* error,
                      size_t error_size);

  /* Set both of these or neither. The first returns the number of the CUDA device that the
   * engine computes on, or -1 if it uses none; then run_device is not called. */
  int32_t (*cuda_device)(void* engine);

  /* Does the same as `run` on that device: it enqueues the work on `stream` (a CUstream) and
   * does not wait for it. The device's primary context is current. `*features` has `*type`
   * (ANOCO_FLOAT32 or ANOCO_FLOAT16) and points to the request's own device memory, the same in
   * every call; it is valid in the order of the stream. `pixels` is also the same in every call
   * for one request.
   *
   * The first call enqueues as usual. In a later call, `stream` is being captured into a CUDA
   * graph; if that succeeds, the graph is launched from then on and the function is not called
   * again. A backend that cannot be captured must fail that call, and is then called for every
   * picture. */
  anoco_status (*run_device)(void* request, const void* pixels, void* stream, const void** features,
                             uint32_t* type, char* error, size_t error_size);
} anoco_backend;

/* Registers a copy of the struct and its name. Each name can be registered once. */
ANOCO_API anoco_status anoco_register_backend(const anoco_backend* backend);

#ifdef __cplusplus
}
#endif

#endif
