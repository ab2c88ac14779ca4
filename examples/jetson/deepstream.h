/* Scores what a DeepStream pipeline computed, where it lies: in the GPU's memory. */
#ifndef ANOCO_EXAMPLE_DEEPSTREAM_H
#define ANOCO_EXAMPLE_DEEPSTREAM_H

#include "anoco_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct line_scorer {
  anoco_cuda_scorer* scorer;
  int64_t patches; /* of a frame, as the bundle's manifest says */
  float threshold; /* the product's */
  float* energy;   /* room for one number a patch */
} line_scorer;

/* The bank holds `rows` references of `dim` numbers, ANOCO_FLOAT32 or ANOCO_FLOAT16, and must not
 * be freed before the scorer is closed. `gpu` is nvinfer's gpu-id. 0, or -1 with a line on stderr.
 */
int line_scorer_open(line_scorer* self, const void* bank, uint32_t type, int64_t rows, int64_t dim,
                     uint32_t gpu);

/* 1: anomalous, 0: good, -1: this frame cannot be judged. `features` is out_buf_ptrs_dev[layer]:
 * patches x dim float32 on the GPU. nvinfer has waited for them, so there is no stream to name.
 * A scorer serves one thread at a time. */
int line_scorer_judge(line_scorer* self, const void* features, float* score);

void line_scorer_close(line_scorer* self);

#ifdef __cplusplus
}
#endif
#endif
