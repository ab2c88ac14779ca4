/* inspect.c - a picture in, a verdict out: all that a line controller needs.
 *
 *   cc -std=c99 inspect.c $(pkg-config --cflags --libs anoco_edge) -o inspect
 *   ./inspect line.anoco part.ppm [PRODUCT]
 *
 * Exit code: 0 good, 1 anomalous, 2 no verdict, whatever the reason: what could not be inspected
 * must not pass.
 */
#include <anoco_edge.h>
#include <stdio.h>
#include <stdlib.h>

static void check(anoco_status status) {
  if (status == ANOCO_OK) return;
  fprintf(stderr, "%s: %s\n", anoco_status_text(status), anoco_last_error());
  exit(2);
}

/* A binary PPM without comments, as `convert part.png part.ppm` writes it. */
static anoco_image read_ppm(const char* path) {
  anoco_image image = ANOCO_IMAGE_INIT;
  FILE* file = fopen(path, "rb");
  int width = 0, height = 0, most = 0;
  if (file && fscanf(file, "P6 %d %d %d", &width, &height, &most) == 3 && most == 255 &&
      width > 0 && height > 0 && width <= 32768 && height <= 32768 && fgetc(file) != EOF) {
    const size_t bytes = (size_t)width * (size_t)height * 3;
    unsigned char* pixels = malloc(bytes);
    if (pixels && fread(pixels, 1, bytes, file) == bytes) image.data = pixels;
  }
  if (file) fclose(file);
  if (!image.data) {
    fprintf(stderr, "%s is not a picture: give a binary PPM (P6) of 8 bits\n", path);
    exit(2);
  }
  image.width = width;
  image.height = height;
  return image;
}

int main(int count, char** arguments) {
  static const char* const words[] = {"uncalibrated", "good", "anomalous"};
  anoco_bundle* bundle;
  anoco_detector* detector;
  anoco_context* context;
  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  anoco_context_options room = ANOCO_CONTEXT_OPTIONS_INIT;
  anoco_result result = ANOCO_RESULT_INIT;
  anoco_image image;
  int64_t k;
  if (count < 3) return fprintf(stderr, "usage: %s BUNDLE PICTURE.ppm [PRODUCT]\n", *arguments), 2;
  if (count > 3) options.product = arguments[3];
  image = read_ppm(arguments[2]);
  room.max_width = image.width;
  room.max_height = image.height;
  check(anoco_bundle_open(arguments[1], &bundle));
  check(anoco_detector_open(bundle, &options, &detector));
  check(anoco_context_create(detector, &room, &context));

  check(anoco_inspect(context, &image, &result)); /* again and again, on a line */
  printf("%s %s %.3g\n", result.product, words[result.verdict], result.ratio);
  for (k = 0; k < result.region_count; ++k) {
    anoco_region region = ANOCO_REGION_INIT;
    anoco_evidence evidence = ANOCO_EVIDENCE_INIT;
    check(anoco_result_region(context, k, &region));
    check(anoco_result_evidence(context, region.row, region.col, &evidence));
    printf("  %.0f,%.0f to %.0f,%.0f unlike %s\n", region.x0, region.y0, region.x1, region.y1,
           evidence.reference);
  }
  anoco_context_destroy(context);
  anoco_detector_destroy(detector);
  anoco_bundle_destroy(bundle);
  free((void*)image.data);
  return result.verdict == ANOCO_GOOD ? 0 : result.verdict == ANOCO_ANOMALOUS ? 1 : 2;
}
