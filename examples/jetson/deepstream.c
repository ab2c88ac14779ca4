/* See deepstream.h. Compiles alone: cc -std=c99 -c deepstream.c -I.../runtime/include */
#include "deepstream.h"

#include <stdio.h>
#include <string.h>

int line_scorer_open(line_scorer* self, const void* bank, uint32_t type, int64_t rows, int64_t dim,
                     uint32_t gpu) {
  anoco_bank_options references = ANOCO_BANK_OPTIONS_INIT;
  anoco_cuda_options cuda = ANOCO_CUDA_OPTIONS_INIT;
  references.type = type;
  references.features = bank;
  references.rows = rows;
  references.dim = dim;
  cuda.device = gpu;
  cuda.operands = ANOCO_FLOAT32; /* nvinfer gives float32; nothing is rounded then */
  cuda.max_rows = self->patches;
  if (anoco_cuda_scorer_create(&references, NULL, &cuda, &self->scorer) == ANOCO_OK) return 0;
  fprintf(stderr, "%s\n", anoco_last_error());
  return -1;
}

int line_scorer_judge(line_scorer* self, const void* features, float* score) {
  anoco_device_patches query = ANOCO_DEVICE_PATCHES_INIT;
  anoco_patch_scores found = ANOCO_PATCH_SCORES_INIT;
  int64_t k;
  query.features = features;
  query.rows = self->patches;
  found.energy = self->energy;
  if (anoco_score_patches_device(self->scorer, &query, &found) != ANOCO_OK) {
    fprintf(stderr, "%s\n", anoco_last_error());
    return -1;
  }
  *score = 0;
  for (k = 0; k < self->patches; ++k)
    if (self->energy[k] > *score) *score = self->energy[k];
  return *score > self->threshold;
}

void line_scorer_close(line_scorer* self) {
  anoco_cuda_scorer_destroy(self->scorer);
  memset(self, 0, sizeof *self);
}
