/* inspect.c - a picture in, a verdict out: all that a line controller needs.
 *   cc -std=c99 inspect.c $(pkg-config --cflags --libs anoco_edge) -o inspect
 *   ./inspect line.anoco part.ppm [PRODUCT]
 * Exit code: 0 good, 1 anomalous, 2 no verdict: what could not be inspected must not pass. */
#include <anoco_edge.h>
#include <stdio.h>
#include <stdlib.h>

static void check(anoco_status status) {
  if (status == ANOCO_OK) return;
  fprintf(stderr, "%s: %s\n", anoco_status_text(status), anoco_last_error());
  exit(2);
}

/* A binary PPM without comments, as `convert part.png part.ppm` writes it. */
static unsigned char* read_ppm(const char* path, int* width, int* height) {
  char gap;
  FILE* file = fopen(path, "rb");
  if (file && fscanf(file, "P6 %5d %5d 255%c", width, height, &gap) == 3) {
    const size_t bytes = (size_t)*width * (size_t)*height * 3;
    unsigned char* pixels = malloc(bytes);
    if (pixels && fread(pixels, 1, bytes, file) == bytes) return fclose(file), pixels;
  }
  fprintf(stderr, "%s is not a picture: give a binary PPM (P6) of 8 bits\n", path);
  exit(2);
}

int main(int count, char** arguments) {
  if (count < 3) return fprintf(stderr, "usage: %s BUNDLE PICTURE.ppm [PRODUCT]\n", *arguments), 2;
  int width, height;
  unsigned char* pixels = read_ppm(arguments[2], &width, &height);

  anoco_bundle* bundle;
  anoco_detector* detector;
  anoco_context* context; /* one for each thread */
  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  if (count > 3) options.product = arguments[3];
  anoco_context_options room = {sizeof room, 0, 0, 0, width, height};
  check(anoco_bundle_open(arguments[1], &bundle));
  check(anoco_detector_open(bundle, &options, &detector));
  check(anoco_context_create(detector, &room, &context));

  anoco_image image = ANOCO_IMAGE_INIT; /* RGB without gaps, in the program's own memory */
  image.data = pixels, image.width = width, image.height = height;
  anoco_result result = ANOCO_RESULT_INIT;
  check(anoco_inspect(context, &image, &result)); /* again and again, on a line */
  static const char* const words[] = {"uncalibrated", "good", "anomalous"};
  printf("%s %s %.3g\n", result.product, words[result.verdict], result.ratio);
  for (int64_t k = 0; k < result.region_count; ++k) {
    anoco_region at = ANOCO_REGION_INIT;
    anoco_evidence evidence = ANOCO_EVIDENCE_INIT;
    check(anoco_result_region(context, k, &at));
    check(anoco_result_evidence(context, at.row, at.col, &evidence));
    printf("  %.0f,%.0f to %.0f,%.0f unlike %s\n", at.x0, at.y0, at.x1, at.y1, evidence.reference);
  }
  anoco_context_destroy(context);
  anoco_detector_destroy(detector);
  anoco_bundle_destroy(bundle);
  free(pixels);
  return result.verdict == ANOCO_UNCALIBRATED ? 2 : result.verdict == ANOCO_ANOMALOUS;
}
