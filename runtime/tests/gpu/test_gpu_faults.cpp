// Every call to the driver and to cuBLAS fails in turn, also with the errors of captures (900 and
// 901), and the device is lost at every one of them: the error names the call, nothing is left
// behind, what can continue does, and a call that fails in a capture costs no picture. argv[1] is a
// bundle with two products that take pictures of one size; argv[2] = 5 means that every fifth call
// is enough; argv[3] is the same for losing the device.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "anoco_cuda.h"
#include "tests/check.h"
#include "tests/gpu/device_backend.hpp"
#include "tests/gpu/owners.hpp"

namespace {

using namespace owners;

const char* const kGivesUp = "cannot recover";

// What happened in one run of a scenario.
struct Outcome {
  std::vector<float> energies;      // of all that was scored
  std::vector<std::string> errors;  // in order
  bool gave_up = false;
  bool scored_since = false;  // something was scored after an error
  std::string graphs;         // why the last graph was not captured

  void add(const float* energy, int64_t count) {
    energies.insert(energies.end(), energy, energy + count);
    scored_since = !errors.empty();
  }
  // Tells whether the results agree as far as the run went.
  bool agrees(const Outcome& expected) const {
    return (!energies.empty() || gave_up) && energies.size() <= expected.energies.size() &&
           std::equal(energies.begin(), energies.end(), expected.energies.begin());
  }
};

std::string logged;

// Tries a step. If it fails it is tried once more, which must succeed unless the error says that
// nothing will.
template <class Step>
bool attempt(Outcome& outcome, Step&& step) {
  if (outcome.scored_since) return false;
  for (int attempts = 0; attempts < 2 && !outcome.gave_up; ++attempts) {
    try {
      step();
      return true;
    } catch (const Error& error) {
      outcome.errors.push_back(error.what());
      outcome.gave_up = outcome.errors.back().find(kGivesUp) != std::string::npos;
    }
  }
  if (!outcome.gave_up) std::fprintf(stderr, "failed twice: %s\n", outcome.errors.back().c_str());
  CHECK(outcome.gave_up);
  return false;
}

class DetectorScenario {
 public:
  DetectorScenario(const char* path, const char* backend)
      : bundle_(open_bundle(path)), names_(products(bundle_)), backend_(backend) {
    const auto made = anoco::Bundle::open(path).product(names_[0]).references[0];
    pixels_.resize(size_t(made.width * made.height * 3));
    for (size_t k = 0; k < pixels_.size(); ++k) pixels_[k] = uint8_t(k * k / 7);
    picture_ = image(pixels_.data(), made.width, made.height, ANOCO_RGB);
  }

  // Opens a detector, inspects, changes the product, and inspects again.
  Outcome operator()() const {
    Outcome outcome;
    Detector detector;
    Context context;
    attempt(outcome, [&] { detector = open(); }) &&
        attempt(outcome, [&] { context = make_context(detector); }) &&
        attempt(outcome, [&] { look(context, outcome); }) &&
        attempt(outcome,
                [&] { check(anoco_detector_select(detector.get(), names_[1].c_str())); }) &&
        attempt(outcome, [&] { look(context, outcome); });
    anoco_graph_info info = ANOCO_GRAPH_INFO_INIT;
    if (context && anoco_context_graphs(context.get(), &info) == ANOCO_OK)
      outcome.graphs = info.reason;
    return outcome;
  }

 private:
  Detector open() const {
    anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
    options.backend = backend_;
    options.scorer = "cuda";
    options.product = names_[0].c_str();
    options.log = [](void*, int32_t, const char* text) { logged += std::string(text) + "\n"; };
    return open_detector(bundle_, options);
  }

  void look(const Context& context, Outcome& outcome) const {
    const anoco_result found = inspect(context, picture_);
    outcome.add(found.energy, found.rows * found.cols);
  }

  Bundle bundle_;
  std::vector<std::string> names_;
  const char* backend_;
  std::vector<uint8_t> pixels_;
  anoco_image picture_;
};

// Creates a scorer, uses it with two numbers of rows, and destroys it.
class ScorerScenario {
 public:
  ScorerScenario(uint32_t operands, int64_t refs)
      : operands_(operands), features_(size_t(refs * 4)) {
    for (size_t k = 0; k < features_.size(); ++k)
      features_[k] = float((k * 2654435761u >> 8) % 1000) / 500 - 0.7f;
  }

  Outcome operator()() const {
    Outcome outcome;
    using Scorer = Owner<anoco_cuda_scorer, anoco_cuda_scorer_destroy>;
    Scorer scorer;
    attempt(outcome,
            [&] {
              anoco_bank_options bank = ANOCO_BANK_OPTIONS_INIT;
              bank.features = features_.data();
              bank.rows = int64_t(features_.size()) / 4;
              bank.dim = 4;
              anoco_scorer_options options = ANOCO_SCORER_OPTIONS_INIT;
              options.memory_mb = 1;
              anoco_cuda_options cuda = ANOCO_CUDA_OPTIONS_INIT;
              cuda.operands = operands_;
              anoco_cuda_scorer* made = nullptr;
              check(anoco_cuda_scorer_create(&bank, &options, &cuda, &made));
              scorer.reset(made);
            }) &&
        attempt(outcome, [&] { score(scorer.get(), 2, outcome); }) &&
        attempt(outcome, [&] { score(scorer.get(), 3, outcome); });
    anoco_graph_info info = ANOCO_GRAPH_INFO_INIT;
    if (scorer && anoco_cuda_scorer_graphs(scorer.get(), &info) == ANOCO_OK)
      outcome.graphs = info.reason;
    return outcome;
  }

 private:
  void score(anoco_cuda_scorer* scorer, int64_t rows, Outcome& outcome) const {
    std::vector<float> energy(size_t(rows), -1.0f);
    const anoco_status status =
        anoco_cuda_scorer_score(scorer, features_.data() + 20, ANOCO_FLOAT32, rows, energy.data(),
                                nullptr, nullptr, nullptr);
    if (status != ANOCO_OK)
      for (const float value : energy) CHECK(value == -1);  // nothing is written
    check(status);
    outcome.add(energy.data(), rows);
  }

  uint32_t operands_;
  std::vector<float> features_;
};

using Scenario = std::function<Outcome()>;

template <class Made, class... Arguments>
Scenario shared(Arguments... arguments) {
  return [made = std::make_shared<const Made>(arguments...)] { return (*made)(); };
}

int64_t objects() {
  simcuda_numbers numbers;
  simcuda_count(&numbers);
  return numbers.objects;
}

// Calls whose failure is not reported, because they only give something back.
bool is_quiet(const std::string& call) {
  static const std::set<std::string> quiet = {
      "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",  "cuMemFree_v2",
      "cuMemFreeHost",       "cuStreamDestroy_v2",  "cuEventDestroy_v2",
      "cuGraphDestroy",      "cuGraphExecDestroy",  "cuModuleUnload",
      "cublasDestroy_v2",    "cuStreamIsCapturing", "cuDevicePrimaryCtxRelease_v2",
      "cuStreamSynchronize"};
  return quiet.count(call) != 0;
}

bool is_named(const std::string& call, const Outcome& outcome) {
  for (const std::string& error : outcome.errors)
    if (error.find(call) != std::string::npos) return true;
  // Of graphs that were not captured a context tells, and the log if it was in the self-test.
  return outcome.graphs.find(call) != std::string::npos || logged.find(call) != std::string::npos;
}

struct Counts {
  int64_t failed = 0, in_capture = 0;
};

// Lets one call after the other fail, until the scenario has no more of them. Returns how many
// failed. With `code` 0 each fails with an error of its own.
Counts fail_each(const Scenario& scenario, const Outcome& expected, int64_t step, int code) {
  Counts counts;
  for (int64_t k = 1;; k += step, ++counts.failed) {
    logged.clear();
    simcuda_fail("any", k, code);
    const Outcome outcome = scenario();
    const char* call = simcuda_failed();
    const bool in_capture = simcuda_failed_in_capture() != 0;
    simcuda_fail("any", 0, 0);
    CHECK(objects() == 0);
    if (call == nullptr) return counts;
    if (in_capture) {
      if (!outcome.errors.empty())
        std::fprintf(stderr, "call %lld, %s: %s\n", (long long)k, call, outcome.errors[0].c_str());
      CHECK(outcome.errors.empty() && outcome.energies == expected.energies);
      ++counts.in_capture;
    }
    const bool reported = is_named(call, outcome);
    if (!reported && !is_quiet(call))
      std::fprintf(stderr, "call %lld, %s: %s\n", (long long)k, call,
                   outcome.errors.empty() ? "no error" : outcome.errors[0].c_str());
    CHECK(reported || is_quiet(call));
    CHECK(outcome.agrees(expected));
  }
}

// Does the same with the device lost from a call on: everything after it fails and says why.
int64_t lose_at_each(const Scenario& scenario, const Outcome& expected, int64_t calls,
                     int64_t step) {
  int64_t lost = 0;
  for (int64_t k = 1; k <= calls; k += step) {
    simcuda_lose(k);
    const Outcome outcome = scenario();
    simcuda_lose(0);
    CHECK(objects() == 0);
    lost += outcome.gave_up ? 1 : 0;
    CHECK(outcome.agrees(expected));
  }
  CHECK(scenario().energies == expected.energies);
  return lost;
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 4);
  const int64_t step = std::atoll(arguments[2]), losing = std::atoll(arguments[3]);
  setenv("ANOCO_CUDA_DRIVER", SIMCUDA_PATH, 1);
  CHECK(fake::add(arguments[1]) == ANOCO_OK && fake::add_device(arguments[1]) == ANOCO_OK);
  const std::pair<const char*, Scenario> scenarios[] = {
      {"detector, engine on the device", shared<DetectorScenario>(arguments[1], "device")},
      {"detector, engine on the host", shared<DetectorScenario>(arguments[1], "fake")},
      {"scorer, FP32", shared<ScorerScenario>(ANOCO_FLOAT32, 30)},
      {"scorer, FP16", shared<ScorerScenario>(ANOCO_FLOAT16, 30)},
  };
  int64_t calls = 0, losses = 0, in_captures = 0;
  for (const auto& [name, scenario] : scenarios) {
    const Outcome expected = scenario();
    CHECK(expected.errors.empty() && !expected.energies.empty());
    CHECK(objects() == 0);
    const Counts failed = fail_each(scenario, expected, step, 0);
    const int64_t lost = lose_at_each(scenario, expected, failed.failed * step, losing);
    std::printf("%s: %lld calls failed in turn, device lost %lld times\n", name,
                (long long)failed.failed, (long long)lost);
    std::fflush(stdout);
    calls += failed.failed;
    losses += lost;
    const int64_t rarer = step == 1 ? 1 : 2 * step + 1;  // there are two codes
    for (const int code : {anoco::gpu::kCaptureUnsupported, anoco::gpu::kCaptureInvalidated}) {
      const Counts more = fail_each(scenario, expected, rarer, code);
      calls += more.failed;
      in_captures += more.in_capture;
    }
  }
  std::printf(
      "fault injection: %lld failed calls (1 of %lld, %lld of them with 900 or 901 in a capture) "
      "and %lld lost devices (1 of %lld) in %zu scenarios\n",
      (long long)calls, (long long)step, (long long)in_captures, (long long)losses,
      (long long)losing, std::size(scenarios));
  return 0;
}
