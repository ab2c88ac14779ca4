// Inspecting takes no memory, also while products are changed over. argv[1] is a bundle with the
// products to inspect; all of them are.
#include <atomic>
#include <string>
#include <vector>

#include "anoco_edge.h"
#include "check.h"
#include "fake_backend.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<int> taken{0};

}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_memalign(size_t, size_t);

// Replaces the C library's, for the library's own threads too.
void* malloc(size_t bytes) {
  if (counting) ++taken;
  return __libc_malloc(bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  if (counting) ++taken;
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (counting) ++taken;
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? 12 : 0;
}
}

namespace {

int allocations_of(anoco_context* context, const anoco_image& image) {
  anoco_result result = ANOCO_RESULT_INIT;
  taken = 0;
  counting = true;
  const anoco_status status = anoco_inspect(context, &image, &result);
  counting = false;
  if (status != ANOCO_OK) fprintf(stderr, "%s\n", anoco_last_error());
  CHECK(status == ANOCO_OK);
  CHECK(result.score >= 0);
  return taken;
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2);
  CHECK(fake::add(arguments[1]) == ANOCO_OK);
  // The test must be able to see an allocation.
  counting = true;
  std::vector<int>* seen = new std::vector<int>(100);
  counting = false;
  CHECK(taken >= 2);
  delete seen;

  anoco_bundle* bundle = nullptr;
  CHECK(anoco_bundle_open(arguments[1], &bundle) == ANOCO_OK);
  const int64_t products = anoco_bundle_product_count(bundle);
  CHECK(products > 0);
  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  options.backend = "fake";
  options.product = anoco_bundle_product(bundle, 0);
  anoco_detector* detector = nullptr;
  CHECK(anoco_detector_open(bundle, &options, &detector) == ANOCO_OK);
  anoco_context* context = nullptr;
  CHECK(anoco_context_create(detector, nullptr, &context) == ANOCO_OK);

  for (int64_t k = 0; k < products; ++k) {
    const char* name = anoco_bundle_product(bundle, k);
    CHECK(anoco_detector_select(detector, name) == ANOCO_OK);
    const auto made = anoco::Bundle::open(arguments[1]).product(name);
    const int64_t width = made.references[0].width, height = made.references[0].height;
    std::vector<uint8_t> pixels(size_t(width * height * 3));
    for (size_t p = 0; p < pixels.size(); ++p) pixels[p] = uint8_t(p * p / 7);
    anoco_image image = ANOCO_IMAGE_INIT;
    image.data = pixels.data();
    image.width = width;
    image.height = height;
    for (int frame = 0; frame < 3; ++frame) CHECK(allocations_of(context, image) == 0);
    image.format = ANOCO_BGR;
    CHECK(allocations_of(context, image) == 0);
    image.width -= 1;  // a picture of another size makes other coefficients, in the same memory
    image.stride = width * 3;
    CHECK(allocations_of(context, image) == 0);
  }
  anoco_context_destroy(context);
  anoco_detector_destroy(detector);
  anoco_bundle_destroy(bundle);
  return 0;
}
