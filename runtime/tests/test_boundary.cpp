// Tests the C boundary of the whole pipeline with a bundle, argv[1]: a call that fails leaves its
// outputs unchanged, structs of other header versions are understood or refused, exceptions of the
// caller's functions come back as a status, and the log receives its messages.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "anoco_edge.h"
#include "tests/check.h"
#include "tests/fake_backend.hpp"
#include "tests/faulty_backend.hpp"

namespace {

using fake::Picture;
using namespace faulty;

namespace fs = std::filesystem;

// ---- outputs that must stay as they were

// An output of any type and the memory behind it: no byte may change during the call.
template <class T>
class Untouched {
 public:
  Untouched() {
    std::memset(bytes_, 0x5a, sizeof bytes_);
    std::memset(before_, 0x5a, sizeof before_);
  }
  explicit Untouched(uint32_t struct_size) : Untouched() {
    std::memcpy(bytes_, &struct_size, sizeof struct_size);
    std::memcpy(before_, &struct_size, sizeof struct_size);
  }
  ~Untouched() { CHECK(std::memcmp(bytes_, before_, sizeof bytes_) == 0); }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;
  operator T*() { return reinterpret_cast<T*>(bytes_); }

 private:
  static constexpr size_t kBytes = sizeof(T) + 64;
  alignas(16) unsigned char bytes_[kBytes], before_[kBytes];
};

template <class T>
Untouched<T> whole() {
  return Untouched<T>(uint32_t(sizeof(T)));
}

void fails(anoco_status wanted, const char* says, anoco_status found) {
  if (found != wanted || std::strstr(anoco_last_error(), says) == nullptr)
    std::fprintf(stderr, "%d: %s\n", int(found), anoco_last_error());
  CHECK(found == wanted);
  CHECK(std::strstr(anoco_last_error(), says) != nullptr);
  CHECK(std::strchr(anoco_last_error(), '\n') == nullptr);
}

constexpr anoco_status kInvalid = ANOCO_INVALID_ARGUMENT;

// ---- the pipeline

struct Pipeline {
  explicit Pipeline(const std::string& path) {
    CHECK(anoco_bundle_open(path.c_str(), &bundle) == ANOCO_OK);
    product = anoco_bundle_product(bundle, 0);
    options.backend = "faulty";
    options.product = product.c_str();
    options.log = listen;
    options.log_user = &log;
    CHECK(anoco_detector_open(bundle, &options, &detector) == ANOCO_OK);
    CHECK(anoco_context_create(detector, nullptr, &context) == ANOCO_OK);
    const auto made = anoco::Bundle::open(path).product(product).references[0];
    width = made.width;
    height = made.height;
  }
  ~Pipeline() {
    anoco_context_destroy(context);
    anoco_detector_destroy(detector);
    anoco_bundle_destroy(bundle);
  }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  Log log;
  std::string product;
  anoco_bundle* bundle = nullptr;
  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  anoco_detector* detector = nullptr;
  anoco_context* context = nullptr;
  int64_t width = 0, height = 0;
};

void the_log_is_told(Pipeline& pipeline) {
  CHECK(pipeline.log.has(ANOCO_LOG_INFO, "self-test passed on faulty"));
  CHECK(pipeline.log.has(ANOCO_LOG_INFO, "product " + pipeline.product));
  const size_t before = pipeline.log.lines.size();
  const Picture picture(pipeline.width, pipeline.height, 1);
  CHECK(anoco_inspect(pipeline.context, &picture.image, nullptr) == ANOCO_OK);
  CHECK(pipeline.log.lines.size() == before);  // never while a picture is inspected
  CHECK(anoco_detector_select(pipeline.detector, pipeline.product.c_str()) == ANOCO_OK);
  CHECK(pipeline.log.lines.size() > before);
  anoco_detector_options silent = pipeline.options;
  silent.log = nullptr;
  anoco_detector* other = nullptr;
  CHECK(anoco_detector_open(pipeline.bundle, &silent, &other) == ANOCO_OK);
  anoco_detector_destroy(other);
}

void opening_fails(Pipeline& pipeline, anoco_status status, const char* says,
                   const anoco_detector_options& options) {
  Untouched<anoco_detector*> out;
  fails(status, says, anoco_detector_open(pipeline.bundle, &options, out));
}

void what_cannot_be_opened(Pipeline& pipeline) {
  {
    Untouched<anoco_bundle*> out;
    fails(kInvalid, "path is null", anoco_bundle_open(nullptr, out));
    fails(ANOCO_BAD_BUNDLE, "no bundle at nowhere", anoco_bundle_open("nowhere", out));
    fails(kInvalid, "out is null", anoco_bundle_open("nowhere", nullptr));
    Untouched<anoco_detector*> detector;
    fails(kInvalid, "bundle is null", anoco_detector_open(nullptr, nullptr, detector));
  }
  anoco_detector_options options = pipeline.options;
  options.product = "nut";
  opening_fails(pipeline, ANOCO_NO_PRODUCT, "nut", options);
  options = pipeline.options;
  options.backend = "none such";
  opening_fails(pipeline, ANOCO_NO_BACKEND, "none such", options);
  for (const double threshold : {-1.0, double(NAN), double(INFINITY)}) {
    options = pipeline.options;
    options.threshold = threshold;
    opening_fails(pipeline, kInvalid, "threshold is", options);
  }
  CHECK(anoco_bundle_product(pipeline.bundle, -1) == nullptr);
  CHECK(anoco_bundle_product(pipeline.bundle, anoco_bundle_product_count(pipeline.bundle)) ==
        nullptr);
  CHECK(anoco_bundle_product_count(nullptr) == 0 && anoco_bundle_product(nullptr, 0) == nullptr);
}

// The self-test: an engine that computes other features must not serve.
void another_model_is_found_out(Pipeline& pipeline) {
  for (const Fault fault : {Fault::another_model, Fault::not_a_number}) {
    on_run = fault;
    opening_fails(pipeline, ANOCO_PARITY, "the self-test failed", pipeline.options);
    on_run = Fault::good;
  }
}

void exceptions_come_back_as_a_status(Pipeline& pipeline) {
  for (Fault* step : {&on_open, &on_request, &on_run}) {
    *step = Fault::throws;
    opening_fails(pipeline, ANOCO_INTERNAL, "out of the blue", pipeline.options);
    *step = Fault::throws_a_number;
    opening_fails(pipeline, ANOCO_INTERNAL, "a defect", pipeline.options);
    *step = Fault::no_memory;
    opening_fails(pipeline, ANOCO_OUT_OF_MEMORY, "memory", pipeline.options);
    *step = Fault::fails;
    opening_fails(pipeline, ANOCO_ENGINE, "faulty", pipeline.options);
    *step = Fault::good;
  }
  on_request = Fault::throws;
  {
    Untouched<anoco_context*> out;
    fails(ANOCO_INTERNAL, "out of the blue", anoco_context_create(pipeline.detector, nullptr, out));
  }
  on_request = Fault::good;
  pipeline.log.throws = true;
  opening_fails(pipeline, ANOCO_INTERNAL, "the log is full", pipeline.options);
  fails(ANOCO_INTERNAL, "the log is full",
        anoco_detector_select(pipeline.detector, pipeline.product.c_str()));
  pipeline.log.throws = false;
}

void results_need_an_inspection(Pipeline& pipeline) {
  auto region = whole<anoco_region>();
  auto evidence = whole<anoco_evidence>();
  auto timings = whole<anoco_timings>();
  Untouched<float> map;
  fails(ANOCO_NO_RESULT, "inspection", anoco_result_region(pipeline.context, 0, region));
  fails(ANOCO_NO_RESULT, "; call anoco_inspect first",
        anoco_result_region(pipeline.context, 0, region));
  fails(ANOCO_NO_RESULT, "inspection", anoco_result_evidence(pipeline.context, 0, 0, evidence));
  fails(ANOCO_NO_RESULT, "inspection", anoco_result_timings(pipeline.context, timings));
  fails(ANOCO_NO_RESULT, "inspection", anoco_result_map(pipeline.context, map));
}

void inspecting_fails(Pipeline& pipeline, anoco_status status, const char* says,
                      const anoco_image* image) {
  auto out = whole<anoco_result>();
  fails(status, says, anoco_inspect(pipeline.context, image, out));
}

void what_cannot_be_inspected(Pipeline& pipeline) {
  const Picture good(pipeline.width, pipeline.height, 2),
      wide(4 * pipeline.width, pipeline.height, 2);
  results_need_an_inspection(pipeline);
  CHECK(anoco_inspect(pipeline.context, &good.image, nullptr) == ANOCO_OK);
  inspecting_fails(pipeline, kInvalid, "image is null", nullptr);
  inspecting_fails(pipeline, ANOCO_BAD_PICTURE, "references are", &wide.image);
  results_need_an_inspection(pipeline);  // what was there before is gone
  for (const auto& [fault, status] :
       {std::pair{Fault::throws, ANOCO_INTERNAL}, std::pair{Fault::fails, ANOCO_ENGINE},
        std::pair{Fault::not_a_number, ANOCO_BAD_FEATURES}}) {
    on_run = fault;
    inspecting_fails(pipeline, status, "", &good.image);
    on_run = Fault::good;
  }
  results_need_an_inspection(pipeline);
  auto out = whole<anoco_result>();
  fails(kInvalid, "context is null", anoco_inspect(nullptr, &good.image, out));
}

void what_is_not_in_a_result(Pipeline& pipeline) {
  const Picture picture(pipeline.width, pipeline.height, 2);
  anoco_result result = ANOCO_RESULT_INIT;
  CHECK(anoco_inspect(pipeline.context, &picture.image, &result) == ANOCO_OK);
  auto region = whole<anoco_region>();
  fails(kInvalid, "region", anoco_result_region(pipeline.context, result.region_count, region));
  fails(kInvalid, "no region -1; the result has ",
        anoco_result_region(pipeline.context, -1, region));
  auto evidence = whole<anoco_evidence>();
  for (const auto& [row, col] : {std::pair{int64_t{-1}, int64_t{0}}, {0, -1}, {result.rows, 0}})
    fails(kInvalid, "outside the grid",
          anoco_result_evidence(pipeline.context, row, col, evidence));
  for (int64_t p = 0; p < result.rows * result.cols; ++p)
    if (!result.counted[p])
      fails(kInvalid, "not inspected; ask for a patch whose result.counted is 1",
            anoco_result_evidence(pipeline.context, p / result.cols, p % result.cols, evidence));
  fails(kInvalid, "out is null", anoco_result_map(pipeline.context, nullptr));
  fails(kInvalid, "out is null", anoco_result_timings(pipeline.context, nullptr));
}

void what_no_context_is_made_for(Pipeline& pipeline) {
  anoco_context_options options = ANOCO_CONTEXT_OPTIONS_INIT;
  Untouched<anoco_context*> out;
  Untouched<uint64_t> bytes;
  const auto refused = [&](const char* says) {
    fails(kInvalid, says, anoco_context_create(pipeline.detector, &options, out));
    fails(kInvalid, says, anoco_query_memory(pipeline.detector, &options, bytes));
    options = ANOCO_CONTEXT_OPTIONS_INIT;
  };
  options.max_width = -1;
  refused("max_width");
  options.max_height = 1 << 20;
  refused("max_height");
  options.threads = 5000;
  refused("threads is 5000; use at most 1024, or 0 for all processors");
  fails(kInvalid, "detector is null", anoco_context_create(nullptr, nullptr, out));
  fails(kInvalid, "detector is null", anoco_query_memory(nullptr, nullptr, bytes));
  fails(kInvalid, "product is null", anoco_detector_select(pipeline.detector, nullptr));
}

// ---- structs of other headers

// Calls `call(out)` with each invalid struct size, then with all but the last 8 bytes of the
// struct: the bytes behind stay unchanged, the bytes before are written.
template <class T, class Call>
void every_length(Call&& call) {
  for (const uint32_t size : {0u, 3u, uint32_t(sizeof(T)) + 8, 0xffffffffu}) {
    Untouched<T> out(size);
    fails(kInvalid, "struct_size is", call(out));
  }
  alignas(16) unsigned char bytes[sizeof(T)], all[sizeof(T)];
  const auto ask = [&](unsigned char* into, uint32_t size) {
    std::memset(into, 0x5a, sizeof(T));
    std::memcpy(into, &size, sizeof size);
    CHECK(call(reinterpret_cast<T*>(into)) == ANOCO_OK);
    CHECK(std::memcmp(into, &size, sizeof size) == 0);
  };
  constexpr size_t kShort = sizeof(T) - 8;
  ask(all, uint32_t(sizeof(T)));
  ask(bytes, uint32_t(kShort));
  CHECK(std::memcmp(bytes + 4, all + 4, kShort - 4) == 0);
  for (size_t k = kShort; k < sizeof(T); ++k) CHECK(bytes[k] == 0x5a);
}

void structs_of_other_headers(Pipeline& pipeline) {
  const Picture picture(pipeline.width, pipeline.height, 3);
  every_length<anoco_bundle_info>(
      [&](anoco_bundle_info* out) { return anoco_bundle_describe(pipeline.bundle, out); });
  every_length<anoco_result>(
      [&](anoco_result* out) { return anoco_inspect(pipeline.context, &picture.image, out); });
  every_length<anoco_timings>(
      [&](anoco_timings* out) { return anoco_result_timings(pipeline.context, out); });
  anoco_result result = ANOCO_RESULT_INIT;
  CHECK(anoco_inspect(pipeline.context, &picture.image, &result) == ANOCO_OK);
  every_length<anoco_evidence>([&](anoco_evidence* out) {
    return anoco_result_evidence(pipeline.context, result.peak_row, result.peak_col, out);
  });
  if (result.region_count > 0)
    every_length<anoco_region>(
        [&](anoco_region* out) { return anoco_result_region(pipeline.context, 0, out); });

  anoco_detector_options later = pipeline.options;
  later.struct_size += 8;
  opening_fails(pipeline, kInvalid, "struct_size is", later);
  anoco_detector_options older = pipeline.options;  // whose header ended before the log
  older.struct_size = offsetof(anoco_detector_options, log);
  const size_t lines = pipeline.log.lines.size();
  anoco_detector* detector = nullptr;
  CHECK(anoco_detector_open(pipeline.bundle, &older, &detector) == ANOCO_OK);
  CHECK(pipeline.log.lines.size() == lines);
  anoco_detector_destroy(detector);
}

// ---- teaching

void teaching(Pipeline& pipeline, bool supported) {
  const Picture one(pipeline.width, pipeline.height, 4), two(pipeline.width, pipeline.height, 5);
  const anoco_image* pictures[] = {&one.image, &two.image};
  anoco_enroll_options options = ANOCO_ENROLL_OPTIONS_INIT;
  options.product = pipeline.product.c_str();
  {
    auto out = whole<anoco_enrolled>();
    fails(kInvalid, "count is 0", anoco_enroll(pipeline.detector, pictures, 0, &options, out));
    fails(kInvalid, "pictures is null", anoco_enroll(pipeline.detector, nullptr, 2, &options, out));
    fails(kInvalid, "detector is null", anoco_enroll(nullptr, pictures, 2, &options, out));
    on_run = Fault::throws;
    fails(supported ? ANOCO_INTERNAL : ANOCO_UNSUPPORTED, "",
          anoco_enroll(pipeline.detector, pictures, 2, &options, out));
    on_run = Fault::good;
  }
  if (!supported) return;
  anoco_enrolled done = ANOCO_ENROLLED_INIT;
  CHECK(anoco_enroll(pipeline.detector, pictures, 2, &options, &done) == ANOCO_OK);
  CHECK(done.added == 2 && done.threshold > 0);
  auto again = whole<anoco_enrolled>();
  fails(ANOCO_BAD_PICTURE, "nothing new",
        anoco_enroll(pipeline.detector, pictures, 2, &options, again));
  const auto inspected = [&] {
    anoco_result result = ANOCO_RESULT_INIT;
    CHECK(anoco_inspect(pipeline.context, &one.image, &result) == ANOCO_OK);
    return result;
  };
  CHECK(inspected().generation + 1 == done.generation);  // as before, until it is selected
  CHECK(anoco_detector_select(pipeline.detector, pipeline.product.c_str()) == ANOCO_OK);
  CHECK(inspected().generation == done.generation);
  CHECK(inspected().score < 1e-6);  // it is a reference now
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2);
  char folder[] = "/tmp/anoco-boundary-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string path = (fs::path(folder) / "line.anoco").string();
  fs::copy(arguments[1], path, fs::copy_options::recursive);
  add(path);
  {
    Pipeline pipeline(path);
    what_cannot_be_inspected(pipeline);
    the_log_is_told(pipeline);
    what_cannot_be_opened(pipeline);
    another_model_is_found_out(pipeline);
    exceptions_come_back_as_a_status(pipeline);
    what_is_not_in_a_result(pipeline);
    what_no_context_is_made_for(pipeline);
    structs_of_other_headers(pipeline);
    const anoco::Product product = anoco::Bundle::open(path).product(pipeline.product);
    teaching(pipeline, product.tta == anoco::Tta::none && !product.calibrated);
  }
  fs::remove_all(folder);
  return 0;
}
