#include "detector/selftest.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "failure.hpp"
#include "scorer/scorer.hpp"

namespace anoco {
namespace {

struct Limits {
  double cosine, norm, energy;
};

// The limits of an engine that computes in BF16, or by the precision of the graph, as in the
// self-test of the Python package.
Limits limits(bool cpu_bf16, const std::string& precision) {
  if (cpu_bf16) return {0.98, 2e-2, 0.15};
  if (precision == "fp16") return {0.999, 1e-2, 5e-2};
  if (precision == "bf16") return {0.998, 1e-2, 0.1};
  if (precision == "int8") return {0.97, 5e-2, 0.25};
  return {0.9999, 1e-3, 1e-2};
}

// Scores the odd patches against the even ones, so that no bank is needed.
std::vector<float> energies(const float* features, int64_t patches, int64_t dim) {
  std::vector<float> even, odd;
  for (int64_t p = 0; p < patches; ++p) {
    auto& rows = p % 2 == 0 ? even : odd;
    rows.insert(rows.end(), features + p * dim, features + (p + 1) * dim);
  }
  anoco_bank_options options = ANOCO_BANK_OPTIONS_INIT;
  options.features = even.data();
  options.rows = (patches + 1) / 2;
  options.dim = dim;
  Scorer scorer(std::make_shared<const Bank>(options), Settings{});
  std::vector<float> found(size_t(patches / 2));
  scorer.score(odd.data(), patches / 2, {found.data(), nullptr, nullptr, nullptr});
  return found;
}

void compare_patches(const float* got, const SelfTest& stored, int64_t patches, int64_t dim,
                     SelfTestResult& result) {
  for (int64_t p = 0; p < patches; ++p) {
    double product = 0, ours = 0, theirs = 0;
    for (int64_t k = p * dim; k < (p + 1) * dim; ++k) {
      const double a = got[k], b = stored.features[size_t(k)];
      product += a * b;
      ours += a * a;
      theirs += b * b;
    }
    const double norm = std::sqrt(ours), wanted = std::sqrt(theirs);
    result.min_cosine = std::min(result.min_cosine, product / std::max(norm * wanted, 1e-30));
    result.norm_error = std::max(result.norm_error, std::abs(norm - wanted) / wanted);
  }
}

bool usable(const float* features, int64_t patches, int64_t dim) {
  for (int64_t p = 0; p < patches; ++p) {
    double squares = 0;
    for (int64_t k = p * dim; k < (p + 1) * dim; ++k) squares += double(features[k]) * features[k];
    if (!(squares > 0 && std::isfinite(squares))) return false;
  }
  return true;
}

SelfTestResult compare_with_stored(const Bundle& bundle, Request& request) {
  const InputContract& input = bundle.manifest().input;
  const SelfTest stored = bundle.selftest();
  const float* got = request.run(stored.pixels.data());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!usable(got, input.patches(), input.dim)) return {-1, kInfinity, kInfinity};
  SelfTestResult result{1, 0, 0};
  compare_patches(got, stored, input.patches(), input.dim, result);
  const std::vector<float> found = energies(got, input.patches(), input.dim);
  double largest = 0;
  for (const float energy : stored.energies) largest = std::max(largest, double(energy));
  for (size_t k = 0; k < found.size(); ++k)
    result.energy_error = std::max(
        result.energy_error, std::abs(double(found[k]) - double(stored.energies[k])) / largest);
  return result;
}

}  // namespace

SelfTestResult run_selftest(const Bundle& bundle, Request& request) {
  const SelfTestResult result = compare_with_stored(bundle, request);
  const bool bf16 = request.engine().bf16();
  const Limits limit = limits(bf16, bundle.manifest().precision);
  if (result.min_cosine >= limit.cosine && result.norm_error <= limit.norm &&
      result.energy_error <= limit.energy)
    return result;
  fail(ANOCO_PARITY,
       "the self-test failed: this engine computes other features" +
           std::string(bf16 ? " in BF16" : "") + " than were exported (worst cosine " +
           std::to_string(result.min_cosine) + ", norms off by " +
           std::to_string(result.norm_error) + ", energies by " +
           std::to_string(result.energy_error) + ")",
       bf16 ? "do not inspect in BF16 here: set options.cpu_precision to fp32"
            : "use another engine, or export again");
}

}  // namespace anoco
