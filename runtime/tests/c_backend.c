/* A backend in C99, whose only feature of a patch is the mean color of its rows. */
#include <stdio.h>
#include <stdlib.h>

#include "anoco_backend.h"

typedef struct {
  int64_t patches, bytes;
} engine;

typedef struct {
  engine shape;
  float features[];
} request;

static anoco_status c_open(void* user, const anoco_model* model, void** out, char* error,
                           size_t error_size) {
  engine* made;
  (void)user;
  if (model->dim != 1) {
    snprintf(error, error_size, "one number a patch, not %lld", (long long)model->dim);
    return ANOCO_BAD_BUNDLE;
  }
  made = malloc(sizeof *made);
  if (made == NULL) return ANOCO_OUT_OF_MEMORY;
  made->patches = model->patches;
  made->bytes = model->width * model->height * 3;
  *out = made;
  return ANOCO_OK;
}

static anoco_status c_create_request(void* opened, void** out, char* error, size_t error_size) {
  const engine* shape = opened;
  request* made = malloc(sizeof *made + (size_t)shape->patches * sizeof(float));
  (void)error;
  (void)error_size;
  if (made == NULL) return ANOCO_OUT_OF_MEMORY;
  made->shape = *shape;
  *out = made;
  return ANOCO_OK;
}

static anoco_status c_run(void* made, const uint8_t* pixels, const float** features, char* error,
                          size_t error_size) {
  request* run = made;
  const int64_t share = run->shape.bytes / run->shape.patches;
  int64_t patch, k;
  (void)error;
  (void)error_size;
  for (patch = 0; patch < run->shape.patches; ++patch) {
    float sum = 0;
    for (k = 0; k < share; ++k) sum += pixels[patch * share + k];
    run->features[patch] = sum / (float)share;
  }
  *features = run->features;
  return ANOCO_OK;
}

anoco_status register_c_backend(void);

anoco_status register_c_backend(void) {
  anoco_backend backend = {sizeof backend,   0,    "means in C", 0, c_open, free,
                           c_create_request, free, c_run,        0, 0};
  return anoco_register_backend(&backend);
}
