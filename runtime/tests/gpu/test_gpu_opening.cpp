// What happens when a detector is opened on a device, with the simulated driver: the self-test of
// the whole path finds a device that computes something else than the host, what was chosen is
// told, and memory is shared and freed. argv[1] is a bundle with two products.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "detector/execution_provider.hpp"
#include "gpu/scorer.hpp"
#include "tests/check.h"
#include "tests/gpu/device_backend.hpp"
#include "tests/gpu/owners.hpp"

extern "C" {  // of CUDA's driver
int cuDevicePrimaryCtxGetState(int, unsigned*, int*);
int cuDevicePrimaryCtxSetFlags_v2(int, unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuDevicePrimaryCtxRelease_v2(int);
}

namespace {

using namespace owners;

std::string logged;

anoco_detector_options options_for(const char* backend, const char* scorer, const char* product) {
  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  options.backend = backend;
  options.scorer = scorer;
  options.product = product;
  options.log = [](void*, int32_t, const char* text) { logged += std::string(text) + "\n"; };
  return options;
}

bool says(const std::string& text, const char* wanted) {
  if (text.find(wanted) != std::string::npos) return true;
  std::fprintf(stderr, "%s\n", text.c_str());
  return false;
}

simcuda_numbers count() {
  simcuda_numbers numbers;
  simcuda_count(&numbers);
  return numbers;
}

std::string failure_of(const Bundle& bundle, const anoco_detector_options& options,
                       anoco_status status = ANOCO_PARITY) {
  try {
    open_detector(bundle, options);
  } catch (const Error& error) {
    CHECK(error.status == status);
    return error.what();
  }
  return "it opens";
}

unsigned flags_of_the_device() {
  unsigned flags = 0;
  int active = 0;
  CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active) == 0);
  return flags;
}

void threads_sleep_while_they_wait(const Bundle& bundle, const char* product) {
  anoco_detector_options options = options_for("device", nullptr, product);
  open_detector(bundle, options);
  CHECK(flags_of_the_device() == 0);
  options.blocking_sync = 1;
  CHECK(cuDevicePrimaryCtxSetFlags_v2(0, 8 | 1) == 0);
  {
    const Detector first = open_detector(bundle, options);
    CHECK(flags_of_the_device() == (8 | 4));  // 8 is not about waiting
    open_detector(bundle, options);           // it is set already, and the device in use
  }
  CHECK(cuDevicePrimaryCtxSetFlags_v2(0, 1) == 0);
  open_detector(bundle, options);
  CHECK(flags_of_the_device() == 4);  // set again, although another one changed it
}

// The simulated driver changes no flags of a device that is in use, as older ones do not.
void another_binding_uses_the_device(const Bundle& bundle, const char* product) {
  anoco_detector_options options = options_for("device", nullptr, product);
  options.blocking_sync = 1;
  void* context = nullptr;
  CHECK(cuDevicePrimaryCtxSetFlags_v2(0, 4) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0);
  open_detector(bundle, options);
  CHECK(cuDevicePrimaryCtxRelease_v2(0) == 0);
  CHECK(cuDevicePrimaryCtxSetFlags_v2(0, 0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0);
  CHECK(says(failure_of(bundle, options, ANOCO_ENGINE),
             "open what sets blocking_sync before anything else uses the device"));
  CHECK(cuDevicePrimaryCtxRelease_v2(0) == 0);
}

void a_wrong_device_is_found(const Bundle& bundle, const char* product) {
  const anoco_detector_options options = options_for("device", nullptr, product);
  logged.clear();
  open_detector(bundle, options);
  CHECK(says(logged,
             "self-test passed on CUDA device 0: the pixels of the CPU, the same features "
             "by a captured graph, energies within "));
  for (const char* kernel : {"anoco_resize_across", "anoco_resize_down"}) {
    simcuda_spoil(kernel);
    CHECK(says(failure_of(bundle, options), "preprocessing gives other pixels than the CPU's"));
  }
  simcuda_spoil("anoco_pull_energy_f32");
  CHECK(says(failure_of(bundle, options), "energies are off by"));
  simcuda_spoil("");
  fake::behavior().wrong_in_graphs = true;
  CHECK(says(failure_of(bundle, options),
             "the engine's CUDA graph gives other features than the engine without it"));
  fake::behavior().wrong_in_graphs = false;
  // An engine on the host has no graph; the rest is checked.
  logged.clear();
  open_detector(bundle, options_for("fake", "cuda", product));
  CHECK(says(logged, "self-test passed on CUDA device 0: the pixels of the CPU, energies within "));
}

anoco_detector_info describe(const Detector& detector) {
  anoco_detector_info info = ANOCO_DETECTOR_INFO_INIT;
  check(anoco_detector_describe(detector.get(), &info));
  return info;
}

void what_runs_is_told(const Bundle& bundle, const char* product) {
  const struct {
    const char *backend, *asked, *scorer, *reason;
  } cases[] = {
      {"device", nullptr, "cuda", "the engine leaves the features on CUDA device 0"},
      {"device", "cpu", "cpu", "asked for, so features are copied from CUDA device 0"},
      {"fake", nullptr, "cpu", "the engine leaves the features on the host"},
      {"fake", "cuda", "cuda", "asked for"},
  };
  for (const auto& wanted : cases) {
    const Detector detector =
        open_detector(bundle, options_for(wanted.backend, wanted.asked, product));
    const anoco_detector_info info = describe(detector);
    CHECK(std::string(info.backend) == wanted.backend);
    CHECK(std::string(info.backend_reason) == "asked for");
    CHECK(std::string(info.scorer) == wanted.scorer);
    CHECK(std::string(info.scorer_reason) == wanted.reason);
  }
}

void half_precision_for_graphs_without_more_digits() {
  CHECK(anoco::multiplies_in_half("fp16") && anoco::multiplies_in_half("int8"));
  CHECK(!anoco::multiplies_in_half("fp32") && !anoco::multiplies_in_half("bf16"));
}

// A workspace is freed soon after a change of the product, not at the next change.
void a_replaced_product_is_freed(const Bundle& bundle, const char* path) {
  const std::vector<std::string> names = products(bundle);
  const Detector detector = open_detector(bundle, options_for("device", nullptr, names[0].c_str()));
  const Context context = make_context(detector);
  const auto made = anoco::Bundle::open(path).product(names[0]).references[0];
  const fake::Picture picture(made.width, made.height, 3);
  inspect(context, picture.image);
  const uint64_t before = count().device_bytes + count().host_bytes;
  for (const std::string& name : {names[1], names[0]}) {
    check(anoco_detector_select(detector.get(), name.c_str()));
    CHECK(count().device_bytes + count().host_bytes > before);
    inspect(context, picture.image);
  }
  for (int k = 0; k < 2000 && count().device_bytes + count().host_bytes != before; ++k)
    usleep(1000);
  CHECK(count().device_bytes + count().host_bytes == before);
}

void scorers_share_the_gram_matrix() {
  using namespace anoco::gpu;
  const std::vector<float> features = [] {
    std::vector<float> made(300);
    for (size_t k = 0; k < made.size(); ++k) made[k] = float(k % 7) + 1;
    return made;
  }();
  anoco_bank_options options = ANOCO_BANK_OPTIONS_INIT;
  options.features = features.data();
  options.rows = 100;
  options.dim = 3;
  const auto bank = std::make_shared<const DeviceBank>(Device::open(0), options, Factors::parts,
                                                       ProductPath::cublas);
  anoco::Settings settings;
  settings.memory = default_memory(*bank->device());
  const uint64_t empty = count().device_bytes;
  {
    const DeviceScorer first(bank, settings, 5);
    const uint64_t one = count().device_bytes;
    CHECK(one - empty == uint64_t(first.device_bytes()));
    CHECK(first.device_bytes() ==
          DeviceScorer::bytes(bank->shape(), settings, 5) + 100 * 100 * int64_t(sizeof(float)));
    const DeviceScorer second(bank, settings, 5);
    CHECK(count().device_bytes - one == uint64_t(DeviceScorer::bytes(bank->shape(), settings, 5)));
  }
  CHECK(count().device_bytes == empty);
}

}  // namespace

int main(int given, char** arguments) {
  CHECK(given == 2);
  setenv("ANOCO_CUDA_DRIVER", SIMCUDA_PATH, 1);
  CHECK(fake::add(arguments[1]) == ANOCO_OK && fake::add_device(arguments[1]) == ANOCO_OK);
  {
    const Bundle bundle = open_bundle(arguments[1]);
    const std::string product = products(bundle)[0];
    threads_sleep_while_they_wait(bundle, product.c_str());
    another_binding_uses_the_device(bundle, product.c_str());
    a_wrong_device_is_found(bundle, product.c_str());
    what_runs_is_told(bundle, product.c_str());
    a_replaced_product_is_freed(bundle, arguments[1]);
  }
  half_precision_for_graphs_without_more_digits();
  scorers_share_the_gram_matrix();
  CHECK(count().objects == 0);
  return 0;
}
