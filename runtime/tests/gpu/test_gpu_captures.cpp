// CUDA graphs survive what other threads do, with the simulated driver: two cameras on one device
// whose products are changed all the time, while contexts are made and destroyed, break no capture;
// foreign code that breaks captures costs no picture; capturing is given up after a few failures,
// and says so. argv[1] is a bundle whose first two products take pictures of the same size;
// argv[2] may be "changes" or "cameras", to run the tests of the rule alone.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "anoco_cuda.h"
#include "gpu/cublas.hpp"
#include "gpu/graph_maker.hpp"
#include "tests/check.h"
#include "tests/gpu/device_backend.hpp"
#include "tests/gpu/owners.hpp"

namespace {

using namespace owners;
using anoco::gpu::CaptureScope;
using anoco::gpu::DeviceChange;
using anoco::gpu::GraphMaker;

simcuda_capture_numbers captures() {
  simcuda_capture_numbers numbers;
  simcuda_captures(&numbers);
  return numbers;
}

anoco_graph_info graphs(const Context& context) {
  anoco_graph_info info = ANOCO_GRAPH_INFO_INIT;
  check(anoco_context_graphs(context.get(), &info));
  return info;
}

Detector open(const Bundle& bundle, const std::string& product, const char* backend) {
  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  options.backend = backend;
  options.product = product.c_str();
  options.scorer = "cuda";
  return open_detector(bundle, options);
}

using Scorer = Owner<anoco_cuda_scorer, anoco_cuda_scorer_destroy>;

constexpr int64_t kMostRows = 100, kDim = 3;

const float* features() {
  static const std::vector<float> only = [] {
    std::vector<float> made(size_t(kMostRows * kDim));
    for (size_t k = 0; k < made.size(); ++k)
      made[k] = float((k * 2654435761u >> 8) % 1000) / 500 - 0.7f;
    return made;
  }();
  return only.data();
}

Scorer make_scorer(int64_t refs) {
  anoco_bank_options bank = ANOCO_BANK_OPTIONS_INIT;
  bank.features = features();
  bank.rows = refs;
  bank.dim = kDim;
  anoco_cuda_scorer* scorer = nullptr;
  check(anoco_cuda_scorer_create(&bank, nullptr, nullptr, &scorer));
  return Scorer(scorer);
}

// Returns the sum of the energies.
double score(const Scorer& scorer, int64_t rows) {
  std::vector<float> energy(size_t(rows), -1.0f);
  check(anoco_cuda_scorer_score(scorer.get(), features() + 1, ANOCO_FLOAT32, rows, energy.data(),
                                nullptr, nullptr, nullptr));
  return std::accumulate(energy.begin(), energy.end(), 0.0);
}

// A detector with one context, and what each product gives for each picture.
class Camera {
 public:
  Camera(const char* path, const char* backend) : names_(products(open_bundle(path))) {
    names_.resize(2);
    detector_ = open(open_bundle(path), names_[0], backend);
    context_ = make_context(detector_);
    const auto made = anoco::Bundle::open(path).product(names_[0]).references[0];
    for (size_t seed = 1; seed <= 3; ++seed) pictures_.emplace_back(made.width, made.height, seed);
    for (const std::string& name : names_) {
      select(name);
      expected_.emplace_back();
      for (const fake::Picture& picture : pictures_)
        expected_.back().push_back(energies(inspect(context_, picture.image)));
    }
    CHECK(expected_[0] != expected_[1]);  // or nothing would be tested
  }

  void look(size_t number) {
    const size_t which = number % pictures_.size();
    const anoco_result found = inspect(context_, pictures_[which].image);
    CHECK(energies(found) == expected_[found.product == names_[0] ? 0 : 1][which]);
  }
  void change(size_t number) { select(names_[number % 2]); }
  const std::string& product() const { return names_[0]; }
  const Detector& detector() const { return detector_; }
  const Context& context() const { return context_; }

 private:
  static std::vector<float> energies(const anoco_result& found) {
    return {found.energy, found.energy + found.rows * found.cols};
  }
  void select(const std::string& name) {
    check(anoco_detector_select(detector_.get(), name.c_str()));
  }

  std::vector<std::string> names_;
  Detector detector_;
  Context context_;
  std::vector<fake::Picture> pictures_;
  std::vector<std::vector<std::vector<float>>> expected_;  // by product and picture
};

// Lets another thread work while this one captures.
void capture_beside(const char* name, const std::function<void()>& work) {
  const auto device = anoco::gpu::Device::open(0);
  const anoco::gpu::CurrentDevice current(*device);
  const anoco::gpu::Stream stream(device);
  const int64_t broken = captures().broken;
  std::thread other;
  {
    const CaptureScope scope;
    CHECK(bool(scope));
    try {
      anoco::gpu::Graph::capture(device, stream.get(), [&] {
        other = std::thread(work);
        usleep(10'000);
      });
    } catch (const anoco::Failure& failure) {
      std::fprintf(stderr, "%s: %s\n", name, failure.text.c_str());
    }
  }
  other.join();
  if (captures().broken != broken)
    std::fprintf(stderr, "%s: %s breaks a capture\n", name, captures().broken_by);
  CHECK(captures().broken == broken);
}

void every_change_waits_for_a_capture(const char* path) {
  Camera camera(path, "device");
  const Scorer scorer = make_scorer(50);
  score(scorer, 20);
  Scorer other;
  Detector opened;
  capture_beside("a scorer is made", [&] { other = make_scorer(7); });
  capture_beside("it scores", [&] { score(other, 2); });
  capture_beside("it is destroyed", [&] { other.reset(); });
  capture_beside("another number of rows", [&] { score(scorer, 13); });
  capture_beside("a context comes and goes", [&] { make_context(camera.detector()); });
  capture_beside("the product changes", [&] { camera.change(0); });
  capture_beside("it is inspected", [&] { camera.look(0); });
  capture_beside("a detector is opened",
                 [&] { opened = open(open_bundle(path), camera.product(), "device"); });
  capture_beside("it is destroyed", [&] { opened.reset(); });
}

void two_cameras_break_no_capture(const char* path) {
  constexpr size_t kLooks = 30;
  constexpr int64_t kCaptures = 15;
  Camera cameras[] = {{path, "device"}, {path, "fake"}};
  const auto before = captures();
  std::atomic<int> busy{2};
  std::vector<std::thread> threads;
  for (Camera& camera : cameras)
    threads.emplace_back([&] {
      for (size_t k = 0; k < kLooks || captures().begun < before.begun + kCaptures; ++k)
        camera.look(k);
      --busy;
    });
  for (Camera& camera : cameras)
    threads.emplace_back([&] {
      for (size_t k = 0; busy > 0; ++k) camera.change(k);
    });
  threads.emplace_back([&] {  // cameras come and go
    while (busy > 0) make_context(cameras[0].detector());
  });
  for (std::thread& thread : threads) thread.join();
  const auto after = captures();
  if (after.broken != before.broken)
    std::fprintf(stderr, "%lld of %lld captures broken, the last by %s\n",
                 (long long)(after.broken - before.broken), (long long)(after.begun - before.begun),
                 after.broken_by);
  CHECK(after.broken == before.broken);
  for (const Camera& camera : cameras) {
    const anoco_graph_info info = graphs(camera.context());
    CHECK(info.made > 0 && info.failed == 0 && info.given_up == 0 && info.reason[0] == 0);
  }
  std::printf("two cameras: %lld captures, none broken\n", (long long)(after.begun - before.begun));
}

// What a library does that does not know the rule.
void disturb(const std::atomic<bool>& stop) {
  const auto device = anoco::gpu::Device::open(0);
  const anoco::gpu::CurrentDevice current(*device);
  const anoco::gpu::Cublas& blas = anoco::gpu::cublas();
  while (!stop) {
    anoco::gpu::CublasHandle handle = nullptr;
    blas.cublasCreate_v2(&handle);
    blas.cublasDestroy_v2(handle);
    usleep(50);
  }
}

void broken_captures_cost_no_picture(const char* path) {
  Camera camera(path, "device");
  const auto before = captures();
  std::atomic<bool> stop{false};
  std::thread foreign(disturb, std::cref(stop));
  for (size_t k = 0; captures().broken < before.broken + 3; ++k) {
    camera.change(k);
    camera.look(k);
  }
  stop = true;
  foreign.join();
  anoco_graph_info info = graphs(camera.context());
  CHECK(info.failed >= 3 && info.given_up == 0);
  CHECK(info.reason[0] != 0);
  const int64_t made = info.made;
  camera.change(0);
  camera.look(0);
  CHECK(graphs(camera.context()).made > made);
}

void capturing_is_given_up(const char* path) {
  Camera camera(path, "device");
  const anoco_graph_info before = graphs(camera.context());
  simcuda_fail("cuStreamEndCapture", -1, 0);
  camera.change(0);
  for (size_t k = 0; k < 2 * GraphMaker::kMostFailures; ++k) camera.look(k);
  simcuda_fail("", 0, 0);
  const anoco_graph_info after = graphs(camera.context());
  CHECK(after.failed == before.failed + GraphMaker::kMostFailures && after.given_up == 1);
  CHECK(after.made == before.made);
  camera.change(1);  // a new product is tried anew
  camera.look(0);
  CHECK(graphs(camera.context()).made == before.made + 1);
}

// An engine that does not allow captures, and a scorer without a detector.
void all_owners_give_up(const char* path) {
  const Bundle bundle = open_bundle(path);
  const std::string product = products(bundle)[0];
  fake::behavior().refuses_capture = true;
  {
    Camera camera(path, "device");
    for (size_t k = 0; k < GraphMaker::kMostFailures; ++k) camera.look(k);
    CHECK(graphs(camera.context()).given_up == 1);
    const int runs = fake::behavior().runs;
    camera.look(0);
    CHECK(fake::behavior().runs == runs + 1);  // it is not tried any more
  }
  fake::behavior().refuses_capture = false;

  const Scorer scorer = make_scorer(4);
  simcuda_fail("cuStreamEndCapture", -1, 0);
  const double first = score(scorer, 2);
  CHECK(first > 0);
  for (int k = 0; k < 2 * GraphMaker::kMostFailures; ++k) CHECK(score(scorer, 2) == first);
  simcuda_fail("", 0, 0);
  anoco_graph_info info = ANOCO_GRAPH_INFO_INIT;
  check(anoco_cuda_scorer_graphs(scorer.get(), &info));
  CHECK(info.made == 0 && info.failed == GraphMaker::kMostFailures && info.given_up == 1);
}

void a_capture_gives_way() {
  {
    const DeviceChange outer, inner;
    CHECK(!CaptureScope());  // in the same thread it would wait for ever
    bool held = true;
    std::thread([&] { held = bool(CaptureScope()); }).join();
    CHECK(!held);
  }
  std::atomic<bool> changed{false};
  std::thread other;
  {
    const CaptureScope scope;
    CHECK(bool(scope));
    const DeviceChange own;  // does not wait: CUDA refuses the call
    other = std::thread([&] {
      const DeviceChange change;
      changed = true;
    });
    usleep(2000);
    CHECK(!changed);
  }
  other.join();
  CHECK(bool(CaptureScope(std::chrono::milliseconds(0))));
}

void the_lock_is_offered_to_programs() {
  CHECK(anoco_cuda_lock(3) == ANOCO_INVALID_ARGUMENT);
  CHECK(anoco_cuda_unlock(ANOCO_CUDA_CAPTURE) == ANOCO_INVALID_ARGUMENT);
  {
    const DeviceChange inside;  // as in a callback of a backend
    CHECK(anoco_cuda_lock(ANOCO_CUDA_CAPTURE) == ANOCO_INVALID_ARGUMENT);
    CHECK(anoco_cuda_unlock(ANOCO_CUDA_CAPTURE) == ANOCO_INVALID_ARGUMENT);
  }
  CHECK(anoco_cuda_lock(ANOCO_CUDA_CHANGE) == ANOCO_OK);
  CHECK(anoco_cuda_lock(ANOCO_CUDA_CAPTURE) == ANOCO_INVALID_ARGUMENT);
  bool held = true;
  std::thread([&] { held = bool(CaptureScope()); }).join();
  CHECK(!held);
  CHECK(anoco_cuda_unlock(ANOCO_CUDA_CAPTURE) == ANOCO_INVALID_ARGUMENT);
  CHECK(anoco_cuda_unlock(ANOCO_CUDA_CHANGE) == ANOCO_OK);
  CHECK(anoco_cuda_lock(ANOCO_CUDA_CAPTURE) == ANOCO_OK);
  std::thread([&] { held = bool(CaptureScope()); }).join();
  CHECK(!held);
  CHECK(anoco_cuda_unlock(ANOCO_CUDA_CAPTURE) == ANOCO_OK);
  std::thread([&] { held = bool(CaptureScope()); }).join();
  CHECK(held);
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2 || count == 3);
  setenv("ANOCO_CUDA_DRIVER", SIMCUDA_PATH, 1);
  setenv("SIMCUDA_CAPTURE_PAUSE", "50", 0);  // microseconds
  CHECK(fake::add(arguments[1]) == ANOCO_OK && fake::add_device(arguments[1]) == ANOCO_OK);
  if (count == 3) {
    const std::string only = arguments[2];
    CHECK(only == "changes" || only == "cameras");
    (only == "changes" ? every_change_waits_for_a_capture
                       : two_cameras_break_no_capture)(arguments[1]);
    return 0;
  }
  a_capture_gives_way();
  the_lock_is_offered_to_programs();
  every_change_waits_for_a_capture(arguments[1]);
  two_cameras_break_no_capture(arguments[1]);
  broken_captures_cost_no_picture(arguments[1]);
  capturing_is_given_up(arguments[1]);
  all_owners_give_up(arguments[1]);
  simcuda_numbers numbers;
  simcuda_count(&numbers);
  CHECK(numbers.objects == 0);
  return 0;
}
