// The boundary of the whole road, argv[1] being a bundle: whatever fails leaves the outputs as they
// were, structs of other headers are understood or refused, exceptions of the caller's own
// functions come back as a status, and the log is told what it is for.
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
using namespace moody;

namespace fs = std::filesystem;

// ---- outputs that must stay as they were

// An output of any type, and what lies behind it: all bytes are after the call what they were.
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

// ---- the road

struct Road {
  explicit Road(const std::string& path) {
    CHECK(anoco_bundle_open(path.c_str(), &bundle) == ANOCO_OK);
    product = anoco_bundle_product(bundle, 0);
    options.backend = "moody";
    options.product = product.c_str();
    options.log = listen;
    options.log_user = &log;
    CHECK(anoco_detector_open(bundle, &options, &detector) == ANOCO_OK);
    CHECK(anoco_context_create(detector, nullptr, &context) == ANOCO_OK);
    const auto made = anoco::Bundle::open(path).product(product).references[0];
    width = made.width;
    height = made.height;
  }
  ~Road() {
    anoco_context_destroy(context);
    anoco_detector_destroy(detector);
    anoco_bundle_destroy(bundle);
  }
  Road(const Road&) = delete;
  Road& operator=(const Road&) = delete;

  Log log;
  std::string product;
  anoco_bundle* bundle = nullptr;
  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  anoco_detector* detector = nullptr;
  anoco_context* context = nullptr;
  int64_t width = 0, height = 0;
};

void the_log_is_told(Road& road) {
  CHECK(road.log.has(ANOCO_LOG_INFO, "self-test passed on moody"));
  CHECK(road.log.has(ANOCO_LOG_INFO, "product " + road.product));
  const size_t before = road.log.lines.size();
  const Picture picture(road.width, road.height, 1);
  CHECK(anoco_inspect(road.context, &picture.image, nullptr) == ANOCO_OK);
  CHECK(road.log.lines.size() == before);  // never while a picture is inspected
  CHECK(anoco_detector_select(road.detector, road.product.c_str()) == ANOCO_OK);
  CHECK(road.log.lines.size() > before);
  anoco_detector_options silent = road.options;
  silent.log = nullptr;
  anoco_detector* other = nullptr;
  CHECK(anoco_detector_open(road.bundle, &silent, &other) == ANOCO_OK);
  anoco_detector_destroy(other);
}

void opening_fails(Road& road, anoco_status status, const char* says,
                   const anoco_detector_options& options) {
  Untouched<anoco_detector*> out;
  fails(status, says, anoco_detector_open(road.bundle, &options, out));
}

void what_cannot_be_opened(Road& road) {
  {
    Untouched<anoco_bundle*> out;
    fails(kInvalid, "path is null", anoco_bundle_open(nullptr, out));
    fails(ANOCO_BAD_BUNDLE, "no bundle at nowhere", anoco_bundle_open("nowhere", out));
    fails(kInvalid, "out is null", anoco_bundle_open("nowhere", nullptr));
    Untouched<anoco_detector*> detector;
    fails(kInvalid, "bundle is null", anoco_detector_open(nullptr, nullptr, detector));
  }
  anoco_detector_options options = road.options;
  options.product = "nut";
  opening_fails(road, ANOCO_NO_PRODUCT, "nut", options);
  options = road.options;
  options.backend = "none such";
  opening_fails(road, ANOCO_NO_BACKEND, "none such", options);
  for (const double threshold : {-1.0, double(NAN), double(INFINITY)}) {
    options = road.options;
    options.threshold = threshold;
    opening_fails(road, kInvalid, "threshold is", options);
  }
  CHECK(anoco_bundle_product(road.bundle, -1) == nullptr);
  CHECK(anoco_bundle_product(road.bundle, anoco_bundle_product_count(road.bundle)) == nullptr);
  CHECK(anoco_bundle_product_count(nullptr) == 0 && anoco_bundle_product(nullptr, 0) == nullptr);
}

// The self-test at the first load: an engine that computes other features must not serve.
void another_model_is_found_out(Road& road) {
  for (const Mood mood : {Mood::another_model, Mood::not_a_number}) {
    on_run = mood;
    opening_fails(road, ANOCO_PARITY, "the self-test failed", road.options);
    on_run = Mood::good;
  }
}

void exceptions_come_back_as_a_status(Road& road) {
  for (Mood* step : {&on_open, &on_request, &on_run}) {
    *step = Mood::throws;
    opening_fails(road, ANOCO_INTERNAL, "out of the blue", road.options);
    *step = Mood::throws_a_number;
    opening_fails(road, ANOCO_INTERNAL, "a defect", road.options);
    *step = Mood::no_memory;
    opening_fails(road, ANOCO_OUT_OF_MEMORY, "memory", road.options);
    *step = Mood::fails;
    opening_fails(road, ANOCO_ENGINE, "moody", road.options);
    *step = Mood::good;
  }
  on_request = Mood::throws;
  {
    Untouched<anoco_context*> out;
    fails(ANOCO_INTERNAL, "out of the blue", anoco_context_create(road.detector, nullptr, out));
  }
  on_request = Mood::good;
  road.log.throws = true;
  opening_fails(road, ANOCO_INTERNAL, "the log is full", road.options);
  fails(ANOCO_INTERNAL, "the log is full",
        anoco_detector_select(road.detector, road.product.c_str()));
  road.log.throws = false;
}

void results_need_an_inspection(Road& road) {
  auto region = whole<anoco_region>();
  auto evidence = whole<anoco_evidence>();
  auto timings = whole<anoco_timings>();
  Untouched<float> map;
  fails(ANOCO_NO_RESULT, "inspection", anoco_result_region(road.context, 0, region));
  fails(ANOCO_NO_RESULT, "; call anoco_inspect first",
        anoco_result_region(road.context, 0, region));
  fails(ANOCO_NO_RESULT, "inspection", anoco_result_evidence(road.context, 0, 0, evidence));
  fails(ANOCO_NO_RESULT, "inspection", anoco_result_timings(road.context, timings));
  fails(ANOCO_NO_RESULT, "inspection", anoco_result_map(road.context, map));
}

void inspecting_fails(Road& road, anoco_status status, const char* says, const anoco_image* image) {
  auto out = whole<anoco_result>();
  fails(status, says, anoco_inspect(road.context, image, out));
}

void what_cannot_be_inspected(Road& road) {
  const Picture good(road.width, road.height, 2), wide(4 * road.width, road.height, 2);
  results_need_an_inspection(road);
  CHECK(anoco_inspect(road.context, &good.image, nullptr) == ANOCO_OK);
  inspecting_fails(road, kInvalid, "image is null", nullptr);
  inspecting_fails(road, ANOCO_BAD_PICTURE, "references are", &wide.image);
  results_need_an_inspection(road);  // what was there before is gone
  for (const auto& [mood, status] :
       {std::pair{Mood::throws, ANOCO_INTERNAL}, std::pair{Mood::fails, ANOCO_ENGINE},
        std::pair{Mood::not_a_number, ANOCO_BAD_FEATURES}}) {
    on_run = mood;
    inspecting_fails(road, status, "", &good.image);
    on_run = Mood::good;
  }
  results_need_an_inspection(road);
  auto out = whole<anoco_result>();
  fails(kInvalid, "context is null", anoco_inspect(nullptr, &good.image, out));
}

void what_is_not_in_a_result(Road& road) {
  const Picture picture(road.width, road.height, 2);
  anoco_result result = ANOCO_RESULT_INIT;
  CHECK(anoco_inspect(road.context, &picture.image, &result) == ANOCO_OK);
  auto region = whole<anoco_region>();
  fails(kInvalid, "region", anoco_result_region(road.context, result.region_count, region));
  fails(kInvalid, "no region -1; the result has ", anoco_result_region(road.context, -1, region));
  auto evidence = whole<anoco_evidence>();
  for (const auto& [row, col] : {std::pair{int64_t{-1}, int64_t{0}}, {0, -1}, {result.rows, 0}})
    fails(kInvalid, "outside the grid", anoco_result_evidence(road.context, row, col, evidence));
  for (int64_t p = 0; p < result.rows * result.cols; ++p)
    if (!result.counted[p])
      fails(kInvalid, "not inspected; ask for a patch whose result.counted is 1",
            anoco_result_evidence(road.context, p / result.cols, p % result.cols, evidence));
  fails(kInvalid, "out is null", anoco_result_map(road.context, nullptr));
  fails(kInvalid, "out is null", anoco_result_timings(road.context, nullptr));
}

void what_no_context_is_made_for(Road& road) {
  anoco_context_options options = ANOCO_CONTEXT_OPTIONS_INIT;
  Untouched<anoco_context*> out;
  Untouched<uint64_t> bytes;
  const auto refused = [&](const char* says) {
    fails(kInvalid, says, anoco_context_create(road.detector, &options, out));
    fails(kInvalid, says, anoco_query_memory(road.detector, &options, bytes));
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
  fails(kInvalid, "product is null", anoco_detector_select(road.detector, nullptr));
}

// ---- structs of other headers

// `call(out)` with a struct of each length that is none, then with all but its last 8 bytes: what
// lies behind those stays, what lies before is written.
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

void structs_of_other_headers(Road& road) {
  const Picture picture(road.width, road.height, 3);
  every_length<anoco_bundle_info>(
      [&](anoco_bundle_info* out) { return anoco_bundle_describe(road.bundle, out); });
  every_length<anoco_result>(
      [&](anoco_result* out) { return anoco_inspect(road.context, &picture.image, out); });
  every_length<anoco_timings>(
      [&](anoco_timings* out) { return anoco_result_timings(road.context, out); });
  anoco_result result = ANOCO_RESULT_INIT;
  CHECK(anoco_inspect(road.context, &picture.image, &result) == ANOCO_OK);
  every_length<anoco_evidence>([&](anoco_evidence* out) {
    return anoco_result_evidence(road.context, result.peak_row, result.peak_col, out);
  });
  if (result.region_count > 0)
    every_length<anoco_region>(
        [&](anoco_region* out) { return anoco_result_region(road.context, 0, out); });

  anoco_detector_options later = road.options;
  later.struct_size += 8;
  opening_fails(road, kInvalid, "struct_size is", later);
  anoco_detector_options older = road.options;  // whose header ended before the log
  older.struct_size = offsetof(anoco_detector_options, log);
  const size_t lines = road.log.lines.size();
  anoco_detector* detector = nullptr;
  CHECK(anoco_detector_open(road.bundle, &older, &detector) == ANOCO_OK);
  CHECK(road.log.lines.size() == lines);
  anoco_detector_destroy(detector);
}

// ---- teaching

void teaching(Road& road, bool supported) {
  const Picture one(road.width, road.height, 4), two(road.width, road.height, 5);
  const anoco_image* pictures[] = {&one.image, &two.image};
  anoco_enroll_options options = ANOCO_ENROLL_OPTIONS_INIT;
  options.product = road.product.c_str();
  {
    auto out = whole<anoco_enrolled>();
    fails(kInvalid, "count is 0", anoco_enroll(road.detector, pictures, 0, &options, out));
    fails(kInvalid, "pictures is null", anoco_enroll(road.detector, nullptr, 2, &options, out));
    fails(kInvalid, "detector is null", anoco_enroll(nullptr, pictures, 2, &options, out));
    on_run = Mood::throws;
    fails(supported ? ANOCO_INTERNAL : ANOCO_UNSUPPORTED, "",
          anoco_enroll(road.detector, pictures, 2, &options, out));
    on_run = Mood::good;
  }
  if (!supported) return;
  anoco_enrolled done = ANOCO_ENROLLED_INIT;
  CHECK(anoco_enroll(road.detector, pictures, 2, &options, &done) == ANOCO_OK);
  CHECK(done.added == 2 && done.threshold > 0);
  auto again = whole<anoco_enrolled>();
  fails(ANOCO_BAD_PICTURE, "nothing new",
        anoco_enroll(road.detector, pictures, 2, &options, again));
  const auto inspected = [&] {
    anoco_result result = ANOCO_RESULT_INIT;
    CHECK(anoco_inspect(road.context, &one.image, &result) == ANOCO_OK);
    return result;
  };
  CHECK(inspected().generation + 1 == done.generation);  // as before, until it is selected
  CHECK(anoco_detector_select(road.detector, road.product.c_str()) == ANOCO_OK);
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
    Road road(path);
    what_cannot_be_inspected(road);
    the_log_is_told(road);
    what_cannot_be_opened(road);
    another_model_is_found_out(road);
    exceptions_come_back_as_a_status(road);
    what_is_not_in_a_result(road);
    what_no_context_is_made_for(road);
    structs_of_other_headers(road);
    const anoco::Product product = anoco::Bundle::open(path).product(road.product);
    teaching(road, product.tta == anoco::Tta::none && !product.calibrated);
  }
  fs::remove_all(folder);
  return 0;
}
