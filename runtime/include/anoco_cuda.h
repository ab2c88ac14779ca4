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
} anoco_cuda_info;

#define ANOCO_CUDA_INFO_INIT                                         \
  {                                                                  \
    sizeof(anoco_cuda_info), 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, { 0 } \
  }

/* Describes the device with this number, counted from 0. It fails only for bad arguments. */
ANOCO_API anoco_status anoco_cuda_describe(uint32_t device, anoco_cuda_info* out);

typedef struct anoco_cuda_scorer anoco_cuda_scorer;

typedef struct anoco_cuda_options {
  uint32_t struct_size;
  uint32_t device; /* the number of the device, counted from 0 */
  /* The type of the factors: ANOCO_FLOAT32, or ANOCO_FLOAT16, to which bank and query are
   * rounded if they are float32. Sums are float32 either way. 0: ANOCO_FLOAT32. */
  uint32_t operands;
  uint32_t reserved; /* 0 */
  /* The number of query patches for which memory is allocated when the scorer is made. A call
   * with more patches allocates more; a number of patches that occurs for the first time makes a
   * new CUDA graph. */
  int64_t max_rows;
} anoco_cuda_options;

#define ANOCO_CUDA_OPTIONS_INIT \
  { sizeof(anoco_cuda_options), 0, 0, 0, 0 }

/* Copies the bank to the device; its own memory may be reused afterwards (`copy` and
 * `directions` have no effect here). The option `memory_mb` of the scorer limits the memory for
 * similarities on the device, 0: 256; the bank and max_rows query patches are not included.
 * `threads` and `pin` have no effect. NULL options: the defaults. */
ANOCO_API anoco_status anoco_cuda_scorer_create(const anoco_bank_options* bank,
                                                const anoco_scorer_options* options,
                                                const anoco_cuda_options* cuda,
                                                anoco_cuda_scorer** out);

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

#ifdef __cplusplus
}
#endif

#endif
