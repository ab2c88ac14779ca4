#include "gpu/path_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/cublas.hpp"
#include "gpu/engine_session.hpp"
#include "gpu/patch_scorer.hpp"
#include "gpu/preparer.hpp"
#include "picture/prepare.hpp"
#include "teaching/half.hpp"

namespace anoco::gpu {
namespace {

// The largest difference of energies, relative to the largest energy. Both sides get the same
// numbers, so sums in another order differ by 1e-6; the rest is for patches of which one neighbor
// more or less is a matter of the last digit.
constexpr double kEnergyLimit = 1e-2;

[[noreturn]] void fail_path(const Device& device, const std::string& what) {
  fail(ANOCO_PARITY,
       "the self-test failed on CUDA device " + std::to_string(device.ordinal()) + " (" +
           describe_device(device.ordinal()).name + "): " + what,
       "update its driver, or score on the CPU (options.scorer), and report it");
}

template <class T>
std::vector<T> fetch(const SharedDevice& device, const T* from, int64_t count,
                     const Stream& stream) {
  PinnedBuffer<T> staged(device, count);
  download(from, staged, count, stream.get());
  stream.wait();
  return {staged.data(), staged.data() + count};
}

// A picture that is made smaller in one direction and larger in the other.
std::vector<uint8_t> pattern(int64_t width, int64_t height) {
  std::vector<uint8_t> pixels(size_t(width * height * 3));
  uint32_t state = 1;
  for (uint8_t& pixel : pixels) {
    state = state * 1664525u + 1013904223u;
    pixel = uint8_t(state >> 24);
  }
  return pixels;
}

void check_preparing(const SharedDevice& device, const InputContract& contract) {
  const int64_t width = std::max<int64_t>(contract.width * 3 / 4 / 2 * 2, 16);
  const int64_t height = std::max<int64_t>(contract.height * 5 / 4 / 2 * 2, 16);
  const std::vector<uint8_t> pixels = pattern(width, height);
  const int64_t bytes = 3 * contract.width * contract.height;
  Preparer on_host(contract, width, height);
  DevicePreparer on_device(device, contract, width, height);
  const DeviceBuffer<uint8_t> prepared(device, bytes);
  const Stream stream(device);
  for (const uint32_t format : {ANOCO_RGB, ANOCO_NV12}) {
    anoco_image image = ANOCO_IMAGE_INIT;
    image.format = format;
    image.data = pixels.data();
    image.width = width;
    image.height = height;
    const anoco_image checked = checked_image(&image);
    std::vector<uint8_t> expected(size_t(bytes), 0);
    on_host.prepare(checked, expected.data());
    on_device.prepare(checked, prepared.data(), stream.get());
    if (fetch(device, prepared.data(), bytes, stream) != expected)
      fail_path(*device, std::string("preprocessing gives other pixels than the CPU's, for ") +
                             (format == ANOCO_RGB ? "RGB" : "NV12"));
  }
}

// Returns whether there is a graph, which an engine on the host does not have.
bool check_engine(const SharedDevice& device, const Bundle& bundle,
                  std::shared_ptr<const Engine> engine, const Log& log) {
  if (engine->cuda_device() < 0) return false;
  const InputContract& window = bundle.manifest().input;
  const std::vector<uint8_t> pixels = bundle.selftest().pixels;
  EngineSession session(device, std::move(engine), window, log);
  if (!session.captured()) return false;
  PinnedBuffer<uint8_t> staged(device, int64_t(pixels.size()));
  std::copy(pixels.begin(), pixels.end(), staged.data());
  const Stream stream(device);
  driver().cuMemcpyHtoDAsync_v2(address_of(session.input()), staged.data(), pixels.size(),
                                stream.get());
  const auto features = [&] {
    const Patches found = session.features();
    return fetch(device, reinterpret_cast<const uint8_t*>(found.address),
                 window.patches() * window.dim * bytes_of(found.type), stream);
  };
  session.run_plain(stream);
  const std::vector<uint8_t> plain = features();
  session.run(stream);
  if (features() != plain)
    fail_path(*device, "the engine's CUDA graph gives other features than the engine without it");
  return true;
}

// The rows of every second patch, rounded as the operands are.
std::vector<float> every_second(const SelfTest& stored, int64_t first, const InputContract& input,
                                Operands operands) {
  std::vector<float> rows;
  for (int64_t p = first; p < input.patches(); p += 2)
    rows.insert(rows.end(), stored.features.begin() + p * input.dim,
                stored.features.begin() + (p + 1) * input.dim);
  if (operands == Operands::float16)
    for (float& number : rows) {
      const uint16_t half = to_half(number);
      kernels().widen(&half, 1, &number);
    }
  return rows;
}

// Scores the odd patches against the even ones, as the self-test of the engine does. Returns the
// difference to the CPU's energies.
double check_scoring(const SharedDevice& device, const Bundle& bundle, Factors factors,
                     ProductPath path, const Log& log) {
  const InputContract& input = bundle.manifest().input;
  const SelfTest stored = bundle.selftest();
  const std::vector<float> even = every_second(stored, 0, input, features_of(factors));
  const std::vector<float> odd = every_second(stored, 1, input, features_of(factors));
  const int64_t rows = int64_t(odd.size()) / input.dim;
  if (rows == 0) return 0;
  anoco_bank_options options = ANOCO_BANK_OPTIONS_INIT;
  options.features = even.data();
  options.rows = int64_t(even.size()) / input.dim;
  options.dim = input.dim;
  options.directions = 0;
  Settings settings;
  std::vector<float> expected(static_cast<size_t>(rows)), plain(expected), captured(expected);
  Scorer(std::make_shared<const Bank>(options), settings)
      .score(odd.data(), rows, {expected.data(), nullptr, nullptr, nullptr});
  settings.memory = default_memory(*device);
  PatchScorer scorer(std::make_shared<const DeviceBank>(device, options, factors, path), settings,
                     rows);
  for (std::vector<float>* energies : {&plain, &captured})
    scorer.score(odd.data(), Operands::float32, rows,
                 {energies->data(), nullptr, nullptr, nullptr});
  if (const GraphCounts graphs = scorer.graphs(); graphs.failed > 0)
    log(ANOCO_LOG_WARNING,
        "scoring: not captured into a CUDA graph in the self-test (" + graphs.reason + ")");
  if (captured != plain)
    fail_path(*device, "the scorer's CUDA graph gives other energies than the scorer without it");
  double largest = 0, error = 0;
  for (int64_t k = 0; k < rows; ++k) {
    largest = std::max(largest, double(expected[size_t(k)]));
    error = std::max(error, std::abs(double(plain[size_t(k)]) - double(expected[size_t(k)])));
  }
  error /= std::max(largest, 1e-30);
  if (error > kEnergyLimit)
    fail_path(*device, "energies are off by " + std::to_string(error) + " of the largest");
  return error;
}

}  // namespace

void check_device_path(const SharedDevice& device, const Bundle& bundle,
                       std::shared_ptr<const Engine> engine, Factors factors, const Log& log) {
  const CurrentDevice current(*device);
  check_preparing(device, bundle.manifest().input);
  const bool graph = check_engine(device, bundle, std::move(engine), log);
  double error = check_scoring(device, bundle, factors, ProductPath::own, log);
  if (has_cublas())
    error = std::max(error, check_scoring(device, bundle, factors, ProductPath::cublas, log));
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", error);
  log(ANOCO_LOG_INFO, "self-test passed on CUDA device " + std::to_string(device->ordinal()) +
                          ": the pixels of the CPU" +
                          (graph ? ", the same features by a captured graph" : "") +
                          ", energies within " + text + " of the largest");
}

}  // namespace anoco::gpu
