/* anoco_cuda.h - ANoCo scoring on an NVIDIA device: for patches in the caller's memory, and for
 * patches that another pipeline (TensorRT, DeepStream) left on the device.
 *
 * The driver is loaded when the first function here is called; nothing links against CUDA. Each
 * function uses the primary context of its device, which is what the CUDA runtime uses too, so
 * pointers and streams may come from either. The context that is current in the calling thread
 * stays as it was. ANOCO_CUDA_DRIVER names another driver library than libcuda.so.1.
 *
 * The status is ANOCO_NO_BACKEND if there is no driver or no device, ANOCO_OUT_OF_MEMORY if the
 * device's memory is full, and ANOCO_ENGINE if a call to the driver fails otherwise; the message
 * then names the call and its error. After some errors CUDA no longer works in this process, and
 * the message says so. You may and should still destroy what was made before.
 *
 * Ownership, errors, versions and threads are as in anoco_edge.h. */
#ifndef ANOCO_CUDA_H
#define ANOCO_CUDA_H

#include "anoco_edge.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct anoco_cuda_info {
  uint32_t struct_size;
  uint32_t usable;        /* 1: scorers can be made; 0: see `why_not` */
  uint32_t built;         /* 1: this library carries device code */
  uint32_t simulated;     /* 1: the driver is the one of our tests, not a device */
  int32_t driver_version; /* such as 12060; 0: no driver was found */
  int32_t device_count;
  int32_t capability;     /* such as 87 for Orin; 0: there is no such device */
  int32_t cublas_version; /* such as 120603; 0: it was not found */
  uint64_t memory;        /* of the device, in bytes */
  char name[128];         /* of the device */
  char code[64];          /* the device code that fits it, such as "sm_87 by CUDA 12.6" */
  char why_not[512];      /* what is missing, and what to do; "": nothing */
  char cublas_file[256];  /* the cuBLAS that is used, as it was found */
} anoco_cuda_info;

#define ANOCO_CUDA_INFO_INIT                                              \
  {                                                                       \
    sizeof(anoco_cuda_info), 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, {0}, { 0 } \
  }

/* Describes the device with this number, counted from 0. It fails only for bad arguments. */
ANOCO_API anoco_status anoco_cuda_describe(uint32_t device, anoco_cuda_info* out);

/* Adds folders in which cuBLAS is looked for, such as those of Python packages. It is looked for
 * when it is first needed: that of the driver's version of CUDA first, then older ones down to 12,
 * each by its name (libcublas.so.13), then in these folders, in Python packages beside this
 * library, and in the folders of CUDA toolkits (CUDA_HOME, /usr/local/cuda*). The environment
 * variable ANOCO_CUBLAS_LIBRARY replaces the search: files or folders, separated by colons. One
 * that cannot make a handle on the device is passed over. */
ANOCO_API anoco_status anoco_cuda_add_folders(const char* const* folders, int64_t count);

typedef struct anoco_cuda_scorer anoco_cuda_scorer;

/* cuBLAS, or the kernels of this library, which need none: they take tensor cores and never write
 * the products to memory, unless plain float32 is asked for (see `operands`). AUTO: what
 * anoco_cuda_measure_products found to be the faster for a bank of about this size; else cuBLAS
 * where it can be loaded. */
enum { ANOCO_PRODUCTS_AUTO = 0, ANOCO_PRODUCTS_CUBLAS = 1, ANOCO_PRODUCTS_OWN = 2 };

typedef struct anoco_cuda_options {
  uint32_t struct_size;
  uint32_t device; /* the number of the device, counted from 0 */
  /* The type of the factors: ANOCO_FLOAT32, or ANOCO_FLOAT16, to which bank and query are
   * rounded if they are float32. Sums are float32 either way. 0: ANOCO_FLOAT32.
   *
   * ANOCO_FLOAT32 factors are multiplied as three products of half-precision parts of rows that
   * are scaled by powers of two, which tensor cores do: a similarity is off by 7.2e-7 at most
   * before sums are rounded, and decisions closer than 3.5e-6 may go either way. With
   * ANOCO_EDGE_CUDA_FLOAT32=plain in the environment they are multiplied in float32; then it is
   * 2e-6, as with ANOCO_FLOAT16. Dense rows (with more than 128 neighbors) of float32 are finished
   * in plain float32 either way. */
  uint32_t operands;
  /* What multiplies queries with references: one of ANOCO_PRODUCTS_... The results agree within
   * rounding. */
  uint32_t products;
  /* The number of query patches for which memory is allocated when the scorer is made. A call
   * with more patches allocates more; a number of patches that occurs for the first time makes a
   * new CUDA graph. */
  int64_t max_rows;
} anoco_cuda_options;

#define ANOCO_CUDA_OPTIONS_INIT \
  { sizeof(anoco_cuda_options), 0, 0, 0, 0 }

/* Copies the bank to the device; its own memory may be reused afterwards (`copy` and
 * `directions` have no effect here). A bank of float32 takes 10 bytes there for each number, 4 in
 * plain float32, one of FP16 2. The option `memory_mb` of the scorer limits the memory for
 * similarities on the device, 0: a sixteenth of the device's memory; the bank and max_rows query
 * patches are not included. The products of the references with each other (4 bytes for each pair,
 * once for all scorers of a bank) are kept if they fit into it with room for 128 query patches.
 * `threads` and `pin` have no effect. NULL options: the defaults. */
ANOCO_API anoco_status anoco_cuda_scorer_create(const anoco_bank_options* bank,
                                                const anoco_scorer_options* options,
                                                const anoco_cuda_options* cuda,
                                                anoco_cuda_scorer** out);

/* The median time of scoring a picture, with what it takes to and from the device. */
typedef struct anoco_product_times {
  uint32_t struct_size;
  uint32_t faster;  /* ANOCO_PRODUCTS_CUBLAS or ANOCO_PRODUCTS_OWN */
  double cublas_ms; /* 0: there is no cuBLAS */
  double own_ms;
} anoco_product_times;

#define ANOCO_PRODUCT_TIMES_INIT \
  { sizeof(anoco_product_times), 0, 0, 0 }

/* Scores pictures of cuda->max_rows patches, which are made of the bank's, with cuBLAS and without,
 * and records in the user's cache ($XDG_CACHE_HOME/anoco-edge, or ~/.cache/anoco-edge) which was
 * the faster, for this device, its driver and this version of the library. Scorers and detectors
 * that are made from then on choose by it. */
ANOCO_API anoco_status anoco_cuda_measure_products(const anoco_bank_options* bank,
                                                   const anoco_scorer_options* options,
                                                   const anoco_cuda_options* cuda,
                                                   anoco_product_times* out);

ANOCO_API void anoco_cuda_scorer_destroy(anoco_cuda_scorer* scorer);

/* Returns the bytes of the device that the scorer uses now in addition to its bank: the memory
 * for similarities, and for the largest number of query patches so far. */
ANOCO_API anoco_status anoco_cuda_scorer_memory(anoco_cuda_scorer* scorer, uint64_t* bytes);

/* Does the same as anoco_scorer_score for patches of the given type (ANOCO_FLOAT32 or
 * ANOCO_FLOAT16) in the caller's memory. */
ANOCO_API anoco_status anoco_cuda_scorer_score(anoco_cuda_scorer* scorer, const void* query,
                                               uint32_t type, int64_t rows, float* energy,
                                               int64_t* anchor, float* similarity,
                                               int64_t* neighbors);

/* Query patches on the scorer's device, or in page-locked or managed memory that the device can
 * read: rows x dim numbers without gaps, which are only read. */
typedef struct anoco_device_patches {
  uint32_t struct_size;
  uint32_t type; /* ANOCO_FLOAT32 or ANOCO_FLOAT16 */
  const void* features;
  int64_t rows;
  void* stream; /* the CUstream that computes them, which the scorer waits for; NULL: the default
                   stream */
  /* The rows to score: `chosen_count` row numbers in the caller's memory; NULL: all. */
  const int32_t* chosen;
  int64_t chosen_count;
} anoco_device_patches;

#define ANOCO_DEVICE_PATCHES_INIT \
  { sizeof(anoco_device_patches), ANOCO_FLOAT32, 0, 0, 0, 0, 0 }

/* Where the scores are written: one value for each scored row; NULL: not wanted. */
typedef struct anoco_patch_scores {
  uint32_t struct_size;
  /* ANOCO_HOST, or ANOCO_DEVICE (memory that the device can write): where the four pointers lead */
  uint32_t memory;
  float* energy;
  int32_t* anchor;
  float* similarity;
  int32_t* neighbors;
} anoco_patch_scores;

#define ANOCO_PATCH_SCORES_INIT \
  { sizeof(anoco_patch_scores), ANOCO_HOST, 0, 0, 0, 0 }

/* Scores the patches and returns when the scores are written. A bad patch (ANOCO_BAD_FEATURES)
 * is named by its row in `features`; the outputs are then unchanged. */
ANOCO_API anoco_status anoco_score_patches_device(anoco_cuda_scorer* scorer,
                                                  const anoco_device_patches* query,
                                                  const anoco_patch_scores* out);

/* ---- CUDA graphs ---- */

/* What became of CUDA graphs, which save the time of enqueueing kernels one by one. A graph that
 * cannot be captured costs no picture: its kernels are enqueued, and capturing is tried again with
 * the next pictures. */
typedef struct anoco_graph_info {
  uint32_t struct_size;
  uint32_t given_up; /* 1: capturing failed so often that it is no longer tried */
  int64_t made;
  int64_t failed;
  int64_t postponed; /* captures that gave way to changes of the device */
  char reason[256];  /* why the last one failed; "": none did */
} anoco_graph_info;

#define ANOCO_GRAPH_INFO_INIT                   \
  {                                             \
    sizeof(anoco_graph_info), 0, 0, 0, 0, { 0 } \
  }

/* Describes the graphs of a context since it was made, and of a scorer; all zero for a context
 * that scores on the CPU. */
ANOCO_API anoco_status anoco_context_graphs(anoco_context* context, anoco_graph_info* out);
ANOCO_API anoco_status anoco_cuda_scorer_graphs(anoco_cuda_scorer* scorer, anoco_graph_info* out);

/* While a thread captures a graph, a call in any thread that synchronizes the device makes the
 * capture invalid (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED): cublasDestroy, cudaFree, a module that
 * is loaded, a TensorRT context that is made or destroyed, and others. Inside this library one lock
 * keeps the two apart. A program that uses CUDA beside it takes part with these functions:
 * ANOCO_CUDA_CHANGE around calls that synchronize the device, which any number of threads may hold
 * at once, and ANOCO_CUDA_CAPTURE from cudaStreamBeginCapture to cudaGraphInstantiate, which one
 * thread holds alone. Both wait; the thread that locks also unlocks. They may not be nested, except
 * that calls of this library are allowed within ANOCO_CUDA_CHANGE. Capture with
 * cudaStreamCaptureModeThreadLocal: a capture in global mode lets calls of all other threads fail.
 */
enum { ANOCO_CUDA_CHANGE = 1, ANOCO_CUDA_CAPTURE = 2 };

ANOCO_API anoco_status anoco_cuda_lock(uint32_t kind);
ANOCO_API anoco_status anoco_cuda_unlock(uint32_t kind);

#ifdef __cplusplus
}
#endif

#endif
