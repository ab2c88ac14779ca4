#include "teaching/provisional_threshold.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "failure.hpp"
#include "scorer/scorer.hpp"
#include "teaching/jitter.hpp"
#include "threads/pool.hpp"

namespace anoco {
namespace {

constexpr double kMargin = 1.2;      // measured, see anoco_edge/teaching/provisional_threshold.py
constexpr double kRounding = 1e-12;  // energies are squares, so rounding leaves (1e-7)^2
constexpr int64_t kMostCalibrationReferences =
    32;  // the cost is their number times the size of the bank

Scorer make_scorer(const Product& product, const BankBuilder& patches) {
  if (!is_valid_lambda(product.lambda))
    fail(ANOCO_INVALID_ARGUMENT, "lambda is " + repr(product.lambda), kLambdaRule);
  Settings settings;
  settings.metric = product.metric;
  settings.lambda = product.lambda;
  settings.floor = product.floor;
  settings.threads = available_processors();
  return Scorer(patches.bank(), settings);
}

// Returns the paper's maximum, or the mean of the five largest energies.
double pool(std::vector<float> energy, Pooling pooling) {
  const size_t count = std::min<size_t>(pooling == Pooling::max ? 1 : 5, energy.size());
  const auto end = energy.begin() + std::ptrdiff_t(count);
  std::partial_sort(energy.begin(), end, energy.end(), std::greater<>());
  double sum = 0;
  for (auto value = energy.begin(); value != end; ++value) sum += *value;
  return sum / double(count);
}

double score(Scorer& scorer, const std::vector<float>& query, int64_t dim, Pooling pooling) {
  const int64_t rows = int64_t(query.size()) / dim;
  std::vector<float> energy(static_cast<size_t>(rows));
  scorer.score(query.data(), rows, {energy.data(), nullptr, nullptr, nullptr});
  return pool(std::move(energy), pooling);
}

// Returns the score up to which a difference is only rounding.
double rounding(const Product& product, const BankBuilder& patches) {
  if (product.metric == ANOCO_METRIC_COSINE) return kRounding;
  const double norm = patches.largest_norm();
  return kRounding * norm * norm;
}

ProvisionalThreshold conclude(const char* method, const std::vector<double>& scores,
                              double rounding) {
  const double worst = *std::max_element(scores.begin(), scores.end());
  Json evidence{
      Json::Object{{"method", method}, {"scores", Json::Array(scores.begin(), scores.end())}}};
  // The backbone sees no difference between the pictures, so nothing is known about their spread.
  if (worst <= rounding) {
    return {0, Json::Object{{"kind", "none"}, {"value", nullptr}, {"evidence", evidence}}};
  }
  const double value = worst * kMargin;
  evidence.set("margin", kMargin);
  return {value, Json::Object{{"kind", "provisional"}, {"value", value}, {"evidence", evidence}}};
}

// Leaves out patches of zeros, as the bank does.
std::vector<float> patches_with_signal(const FeatureExtractor::PatchFeatures& grid,
                                       const InputContract& input, const char* name) {
  std::vector<float> kept;
  for (int64_t p = 0; p < input.patches(); ++p) {
    const float* patch = grid.features + p * input.dim;
    const bool signal = std::any_of(patch, patch + input.dim, [](float v) { return v != 0; });
    if (grid.scored[p] && signal) kept.insert(kept.end(), patch, patch + input.dim);
  }
  if (kept.empty())
    fail(ANOCO_BAD_FEATURES, std::string(name) + " has no patch to score; widen the region");
  return kept;
}

}  // namespace

std::vector<int32_t> calibration_set(int64_t references) {
  const int64_t count = std::min(references, kMostCalibrationReferences);
  const double step = count > 1 ? double(references - 1) / double(count - 1) : 0;
  std::vector<int32_t> numbers;
  for (int64_t k = 0; k < count; ++k)
    numbers.push_back(static_cast<int32_t>(std::nearbyint(double(k) * step)));
  return numbers;
}

ProvisionalThreshold threshold_from_references(const Product& product, const BankBuilder& patches,
                                               int64_t references) {
  std::vector<double> scores;
  for (const int32_t number : calibration_set(references)) {
    const BankBuilder rest = patches.without(number);
    Scorer scorer = make_scorer(product, rest);
    scores.push_back(score(scorer, patches.features_of(number), patches.dim(), product.pooling));
  }
  return conclude("leave-one-picture-out", scores, rounding(product, patches));
}

ProvisionalThreshold threshold_from_views(const Product& product, const BankBuilder& patches,
                                          FeatureExtractor& extractor, const Rgb& reference) {
  Scorer scorer = make_scorer(product, patches);
  std::vector<double> scores;
  for (int number = 0; number < kJitterCount; ++number) {
    const std::vector<uint8_t> view =
        jittered(reference.pixels, reference.width, reference.height, number);
    const auto grid = extractor.extract({reference.width, reference.height, view.data()});
    const auto query = patches_with_signal(grid, extractor.input(), "a view of the reference");
    scores.push_back(score(scorer, query, patches.dim(), product.pooling));
  }
  return conclude("gentle augmentations of the only reference", scores, rounding(product, patches));
}

}  // namespace anoco
