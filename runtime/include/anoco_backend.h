/* anoco_backend.h - an engine of your own: whatever turns pixels into patch features.
 *
 * Fill in an anoco_backend, register it once, and name it in anoco_detector_options.backend. The
 * detector opens one engine and shares it between contexts; each context has a request of its own,
 * which it uses in one thread at a time. Callbacks must not throw; if one does, the call that
 * needed it fails with ANOCO_INTERNAL.
 *
 * A function that fails returns a status other than ANOCO_OK and writes one line that says what is
 * wrong into `error`, which has room for `error_size` bytes with the final zero.
 */
#ifndef ANOCO_BACKEND_H
#define ANOCO_BACKEND_H

#include "anoco_edge.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The backbone, and how it is to be run. Valid during `open` only. */
typedef struct anoco_model {
  uint32_t struct_size;
  uint32_t threads; /* 0: all processors */
  const char* path; /* backbone.onnx, its hash checked; further files of the graph lie beside it */
  int64_t width;    /* of the input: uint8 [1, height, width, 3], RGB */
  int64_t height;
  int64_t patches; /* of the output: float32 [1, patches, dim], rows of the grid one by one */
  int64_t dim;
  const char* device;  /* as the caller named it; NULL: the backend's first choice */
  const char* library; /* likewise; NULL: to be searched for */
  uint32_t gpu;        /* number of the CUDA device, for backends that use one */
  uint32_t reserved;
  const char* identity; /* of the graph: the hashes of its files, by which plans of it are found */
} anoco_model;

typedef struct anoco_backend {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;
  void* user; /* given to `open` */

  anoco_status (*open)(void* user, const anoco_model* model, void** engine, char* error,
                       size_t error_size);
  void (*close)(void* engine);

  /* Takes all memory that `run` needs. */
  anoco_status (*create_request)(void* engine, void** request, char* error, size_t error_size);
  void (*destroy_request)(void* request);

  /* The features of one picture; `*features` is the request's own memory, valid until it runs
   * again or is destroyed. */
  anoco_status (*run)(void* request, const uint8_t* pixels, const float** features, char* error,
                      size_t error_size);

  /* Optional, both or none. The number of the CUDA device that the engine computes on, -1: on none,
   * and run_device is not called. */
  int32_t (*cuda_device)(void* engine);

  /* As `run`, on that device: enqueues the work on `stream` (a CUstream) and does not wait for it.
   * The device's primary context is current. `*features` has `*type` (ANOCO_FLOAT32 or
   * ANOCO_FLOAT16) and leads to the request's own device memory, the same in every call; it is
   * valid in the order of the stream. `pixels` is the same in every call for one request, too.
   *
   * The first call enqueues as always; in a later one `stream` is being captured into a CUDA graph,
   * and if that succeeds there are no more: the graph is launched instead. A backend that cannot be
   * captured fails that call, and is called for every picture. */
  anoco_status (*run_device)(void* request, const void* pixels, void* stream, const void** features,
                             uint32_t* type, char* error, size_t error_size);
} anoco_backend;

/* Keeps a copy of the struct and its name. A name can be taken once. */
ANOCO_API anoco_status anoco_register_backend(const anoco_backend* backend);

#ifdef __cplusplus
}
#endif

#endif
