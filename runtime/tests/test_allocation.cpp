// Inspecting allocates nothing, nor does reading the results, also while products change; a context
// takes as much memory as anoco_query_memory says. argv[1] is a bundle. All of its products are
// inspected, on the CPU and on the simulated device, whose own memory does not count. On the device
// a new number of patches is captured first, so it is measured afterwards.
#include <atomic>
#include <string>
#include <vector>

#include "anoco_cuda.h"
#include "tests/check.h"
#include "tests/gpu/device_backend.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<int> taken{0};
// Bytes of memory that is aligned for vectors, as all large buffers are.
std::atomic<int64_t> buffers{0};

void count(size_t bytes = 0) {
  if (!counting || simcuda_inside() != 0) return;
  ++taken;
  buffers += int64_t(bytes);
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

// Replaces the allocator of the C library, also for the library's own threads.
void* malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}

void* calloc(size_t items, size_t bytes) {
  count();
  return __libc_calloc(items, bytes);
}

void* realloc(void* memory, size_t bytes) {
  count();
  return __libc_realloc(memory, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  count(bytes);
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? 12 : 0;
}
}

namespace {

int64_t regions_seen = 0;

int allocations_of(anoco_context* context, const anoco_image& image, std::vector<float>& map) {
  anoco_result result = ANOCO_RESULT_INIT;
  anoco_region region = ANOCO_REGION_INIT;
  anoco_evidence evidence = ANOCO_EVIDENCE_INIT;
  anoco_timings timings = ANOCO_TIMINGS_INIT;
  taken = 0;
  counting = true;
  anoco_status status = anoco_inspect(context, &image, &result);
  for (int64_t k = 0; k < result.region_count && status == ANOCO_OK; ++k)
    status = anoco_result_region(context, k, &region);
  if (status == ANOCO_OK)
    status = anoco_result_evidence(context, result.peak_row, result.peak_col, &evidence);
  if (status == ANOCO_OK) status = anoco_result_map(context, map.data());
  if (status == ANOCO_OK) status = anoco_result_timings(context, &timings);
  counting = false;
  if (status != ANOCO_OK) fprintf(stderr, "%s\n", anoco_last_error());
  CHECK(status == ANOCO_OK);
  CHECK(result.score >= 0 && timings.total > 0);
  regions_seen += result.region_count;
  return taken;
}

// The picture in every format, with and without gaps.
void inspect_every_format(anoco_context* context, int64_t width, int64_t height, bool device) {
  std::vector<uint8_t> pixels(size_t((width + 3) * height * 4));
  std::vector<float> map(size_t(width * height));
  for (size_t p = 0; p < pixels.size(); ++p) pixels[p] = uint8_t(p * p / 7);
  anoco_image image = ANOCO_IMAGE_INIT;
  image.data = pixels.data();
  image.height = height;
  for (const uint32_t format :
       {ANOCO_RGB, ANOCO_BGR, ANOCO_RGBA, ANOCO_BGRA, ANOCO_GREY, ANOCO_NV12})
    for (const int64_t stride : {int64_t{0}, (width + 3) * 4})
      // A picture of another size needs other weights, in the same memory.
      for (const int64_t less : {0, 2}) {
        image.format = format;
        image.stride = stride;
        image.width = width - less;
        if (device) allocations_of(context, image, map);
        CHECK(allocations_of(context, image, map) == 0);
      }
}

// Inspects a picture that is on the device already.
void inspect_there(anoco_context* context, int64_t width, int64_t height) {
  const anoco::gpu::DeviceBuffer<uint8_t> pixels(anoco::gpu::Device::open(0), 3 * width * height);
  std::vector<float> map(size_t(width * height));
  anoco_image image = ANOCO_IMAGE_INIT;
  image.data = pixels.data();
  image.width = width;
  image.height = height;
  image.memory = ANOCO_DEVICE;
  allocations_of(context, image, map);
  CHECK(allocations_of(context, image, map) == 0);
}

// Scores patches of the host and of the device, with a Gram matrix and with a bank that is too
// large for one.
void score_patches() {
  constexpr int64_t kRows = 24, kDim = 8;
  for (const int64_t refs : {40, 3000}) {
    std::vector<float> features(size_t(refs * kDim));
    for (size_t k = 0; k < features.size(); ++k) features[k] = float(k * k % 101) / 50 + 0.1f;
    anoco_bank_options bank = ANOCO_BANK_OPTIONS_INIT;
    bank.features = features.data();
    bank.rows = refs;
    bank.dim = kDim;
    anoco_scorer_options options = ANOCO_SCORER_OPTIONS_INIT;
    options.memory_mb = 4;
    anoco_cuda_scorer* scorer = nullptr;
    CHECK(anoco_cuda_scorer_create(&bank, &options, nullptr, &scorer) == ANOCO_OK);
    const auto device = anoco::gpu::Device::open(0);
    const anoco::gpu::DeviceBuffer<float> there(device, kRows * kDim);
    {
      const anoco::gpu::CurrentDevice current(*device);
      anoco::gpu::driver().cuMemsetD32Async(there.address(), 0x3f800000, kRows * kDim, nullptr);
    }
    const int32_t chosen[] = {3, 1, 20};
    anoco_device_patches patches = ANOCO_DEVICE_PATCHES_INIT;
    patches.features = there.data();
    patches.rows = kRows;
    patches.chosen_count = 3;
    float energy[kRows];
    anoco_patch_scores scores = ANOCO_PATCH_SCORES_INIT;
    scores.energy = energy;
    for (int round = 0; round < 3; ++round) {
      taken = 0;
      counting = round > 0;
      anoco_status status = anoco_cuda_scorer_score(scorer, features.data(), ANOCO_FLOAT32, kRows,
                                                    energy, nullptr, nullptr, nullptr);
      for (const int32_t* some : {static_cast<const int32_t*>(nullptr), chosen}) {
        patches.chosen = some;
        if (status == ANOCO_OK) status = anoco_score_patches_device(scorer, &patches, &scores);
      }
      counting = false;
      CHECK(status == ANOCO_OK && taken == 0);
    }
    anoco_cuda_scorer_destroy(scorer);
  }
}

// Returns the bytes on the device and in page-locked memory.
int64_t device_bytes() {
  simcuda_numbers numbers;
  simcuda_count(&numbers);
  return int64_t(numbers.device_bytes + numbers.host_bytes);
}

// Each buffer is rounded up to a multiple of 64 bytes. An engine on the device takes memory of its
// own, and its features may be smaller than counted.
void a_context_takes_what_it_says(anoco_detector* detector, bool own_engine) {
  constexpr int64_t kRounding = 64 * 64;
  anoco_context_options options = ANOCO_CONTEXT_OPTIONS_INIT;
  for (const uint32_t threads : {1, 3}) {
    options.threads = threads;
    uint64_t said = 0;
    CHECK(anoco_query_memory(detector, &options, &said) == ANOCO_OK);
    anoco_context* context = nullptr;
    buffers = 0;
    const int64_t before = device_bytes();
    counting = true;
    const anoco_status status = anoco_context_create(detector, &options, &context);
    counting = false;
    CHECK(status == ANOCO_OK);
    const int64_t used = buffers + device_bytes() - before;
    if (!own_engine) CHECK(used >= int64_t(said));
    CHECK(used <= int64_t(said) + kRounding);
    anoco_context_destroy(context);
  }
}

void inspect_all(const char* path, const char* backend, const char* scorer) {
  const bool device = scorer != nullptr;
  anoco_bundle* bundle = nullptr;
  CHECK(anoco_bundle_open(path, &bundle) == ANOCO_OK);
  const int64_t products = anoco_bundle_product_count(bundle);
  CHECK(products > 0);
  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  options.backend = backend;
  options.scorer = scorer;
  options.product = anoco_bundle_product(bundle, 0);
  anoco_detector* detector = nullptr;
  CHECK(anoco_detector_open(bundle, &options, &detector) == ANOCO_OK);
  anoco_context* context = nullptr;
  CHECK(anoco_context_create(detector, nullptr, &context) == ANOCO_OK);
  regions_seen = 0;
  for (int64_t k = 0; k < products; ++k) {
    const char* name = anoco_bundle_product(bundle, k);
    CHECK(anoco_detector_select(detector, name) == ANOCO_OK);
    const auto made = anoco::Bundle::open(path).product(name).references[0];
    inspect_every_format(context, made.width, made.height, device);
    if (device) inspect_there(context, made.width, made.height);
    a_context_takes_what_it_says(detector, std::string(backend) == "device");
  }
  CHECK(regions_seen > 0);  // or finding regions was not tested
  anoco_context_destroy(context);
  anoco_detector_destroy(detector);
  anoco_bundle_destroy(bundle);
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2);
  setenv("ANOCO_CUDA_DRIVER", SIMCUDA_PATH, 1);
  CHECK(fake::add(arguments[1]) == ANOCO_OK && fake::add_device(arguments[1]) == ANOCO_OK);
  // The test must be able to see an allocation.
  counting = true;
  std::vector<int>* seen = new std::vector<int>(100);
  counting = false;
  CHECK(taken >= 2);
  delete seen;

  inspect_all(arguments[1], "fake", nullptr);
  inspect_all(arguments[1], "fake", "cuda");
  inspect_all(arguments[1], "device", "cuda");
  score_patches();
  return 0;
}
