/* anoco_cuda.h - ANoCo scoring on an NVIDIA device: for patches in the caller's memory, and for
 * those that a pipeline of its own (TensorRT, DeepStream) left on the device.
 *
 * The driver is loaded when the first function here is called; nothing links against CUDA. Each
 * function uses the primary context of its device, which is what the CUDA runtime uses too, so
 * pointers and streams may come from either. The context that is current in the calling thread
 * stays as it was. ANOCO_CUDA_DRIVER names another driver library than libcuda.so.1.
 *
 * Where there is no driver or no device the status is ANOCO_NO_BACKEND, where the device's memory
 * is full ANOCO_OUT_OF_MEMORY, and ANOCO_ENGINE where a call to the driver fails otherwise: the
 * text names the call and its error. After some errors CUDA gives nothing more in this process; the
 * text says so. What was made before may and should still be destroyed.
 *
 * Ownership, errors, versions and threads are as in anoco_edge.h.
 */
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
} anoco_cuda_info;

#define ANOCO_CUDA_INFO_INIT                                         \
  {                                                                  \
    sizeof(anoco_cuda_info), 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, { 0 } \
  }

/* What is known of the device of that number, counted from 0. Fails for bad arguments alone. */
ANOCO_API anoco_status anoco_cuda_describe(uint32_t device, anoco_cuda_info* out);

typedef struct anoco_cuda_scorer anoco_cuda_scorer;

typedef struct anoco_cuda_options {
  uint32_t struct_size;
  uint32_t device; /* its number, counted from 0 */
  /* What is multiplied: ANOCO_FLOAT32, or ANOCO_FLOAT16, to which bank and query are rounded if
   * they are not. Sums are float32 either way. 0: ANOCO_FLOAT32. */
  uint32_t operands;
  uint32_t reserved; /* 0 */
  /* Query patches that memory is taken for when the scorer is made. A call with more of them takes
   * more memory; a number of patches that comes for the first time makes a new CUDA graph. */
  int64_t max_rows;
} anoco_cuda_options;

#define ANOCO_CUDA_OPTIONS_INIT \
  { sizeof(anoco_cuda_options), 0, 0, 0, 0 }

/* Copies the bank to the device; its memory is free for other uses then (`copy` and `directions`
 * mean nothing here). Of the scorer's options `memory_mb` is the room for similarities on the
 * device, 0: 256; the bank and max_rows query patches come on top. `threads` and `pin` mean
 * nothing. NULL options: the defaults. */
ANOCO_API anoco_status anoco_cuda_scorer_create(const anoco_bank_options* bank,
                                                const anoco_scorer_options* options,
                                                const anoco_cuda_options* cuda,
                                                anoco_cuda_scorer** out);

ANOCO_API void anoco_cuda_scorer_destroy(anoco_cuda_scorer* scorer);

/* Bytes of the device that it holds now beside its bank: room for similarities, and for the most
 * query patches that came so far. */
ANOCO_API anoco_status anoco_cuda_scorer_memory(anoco_cuda_scorer* scorer, uint64_t* bytes);

/* As anoco_scorer_score, for patches in the caller's memory of the given type (ANOCO_FLOAT32 or
 * ANOCO_FLOAT16). */
ANOCO_API anoco_status anoco_cuda_scorer_score(anoco_cuda_scorer* scorer, const void* query,
                                               uint32_t type, int64_t rows, float* energy,
                                               int64_t* anchor, float* similarity,
                                               int64_t* neighbors);

/* Query patches on the scorer's device, or in page-locked or managed memory that it reaches: rows x
 * dim numbers without gaps, which are only read. */
typedef struct anoco_device_patches {
  uint32_t struct_size;
  uint32_t type; /* ANOCO_FLOAT32 or ANOCO_FLOAT16 */
  const void* features;
  int64_t rows;
  void* stream; /* the CUstream that makes them, which is waited for; NULL: the default stream */
  /* Which of the rows are scored: `chosen_count` numbers in the caller's memory; NULL: all. */
  const int32_t* chosen;
  int64_t chosen_count;
} anoco_device_patches;

#define ANOCO_DEVICE_PATCHES_INIT \
  { sizeof(anoco_device_patches), ANOCO_FLOAT32, 0, 0, 0, 0, 0 }

/* Where their scores go: a value for each row that is scored, NULL for what is not wanted. */
typedef struct anoco_patch_scores {
  uint32_t struct_size;
  /* ANOCO_HOST or ANOCO_DEVICE (or what the device reaches): what the four pointers lead to */
  uint32_t memory;
  float* energy;
  int32_t* anchor;
  float* similarity;
  int32_t* neighbors;
} anoco_patch_scores;

#define ANOCO_PATCH_SCORES_INIT \
  { sizeof(anoco_patch_scores), ANOCO_HOST, 0, 0, 0, 0 }

/* Returns when the scores are there. A bad patch (ANOCO_BAD_FEATURES) is named by its row in
 * `features`; the outputs are as they were then. */
ANOCO_API anoco_status anoco_score_patches_device(anoco_cuda_scorer* scorer,
                                                  const anoco_device_patches* query,
                                                  const anoco_patch_scores* out);

#ifdef __cplusplus
}
#endif

#endif
