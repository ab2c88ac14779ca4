#include "teaching/provisional_threshold.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "detector/method.hpp"
#include "failure.hpp"
#include "picture/pooling.hpp"
#include "scorer/scorer.hpp"
#include "teaching/jitter.hpp"
#include "threads/pool.hpp"

namespace anoco {
namespace {

constexpr double kMargin = 1.2;      // measured, see anoco_edge/teaching/provisional_threshold.py
constexpr double kRounding = 1e-12;  // energies are squares, so rounding leaves (1e-7)^2
constexpr int64_t kMostCalibrationReferences =
    32;  // the cost is their number times the size of the bank

Settings scorer_settings(const Product& product, const Bank& bank) {
  Settings settings = method_settings(product, bank);
  if (!is_valid_lambda(settings.lambda))
    fail(ANOCO_INVALID_ARGUMENT, "lambda is " + repr(settings.lambda), kLambdaRule);
  settings.threads = available_processors();
  return settings;
}

// Patches of a picture: their features, and their places in the grid.
struct Query {
  std::vector<float> features;
  std::vector<int64_t> places;
};

double score(Scorer& scorer, const Query& query, const InputContract& input, Pooling pooling) {
  const auto rows = int64_t(query.places.size());
  std::vector<float> energy(query.places.size());
  scorer.score(query.features.data(), rows, {energy.data(), nullptr, nullptr, nullptr});
  const auto patches = static_cast<size_t>(input.patches());
  std::vector<float> grid(patches), smoothed(patches);
  std::vector<uint8_t> scored(patches);
  for (size_t k = 0; k < energy.size(); ++k) {
    grid[size_t(query.places[k])] = energy[k];
    scored[size_t(query.places[k])] = 1;
  }
  if (pooling == Pooling::smooth) {
    smooth_grid(grid.data(), scored.data(), input.rows, input.cols, smoothed.data());
    grid.swap(smoothed);
  }
  return pool(grid.data(), scored.data(), input.patches(), pooling).score;
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
Query patches_with_signal(const FeatureExtractor::PatchFeatures& grid, const InputContract& input,
                          const char* name) {
  Query kept;
  for (int64_t p = 0; p < input.patches(); ++p) {
    const float* patch = grid.features + p * input.dim;
    const bool signal = std::any_of(patch, patch + input.dim, [](float v) { return v != 0; });
    if (!grid.scored[p] || !signal) continue;
    kept.features.insert(kept.features.end(), patch, patch + input.dim);
    kept.places.push_back(p);
  }
  if (kept.places.empty())
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
                                               const InputContract& input, int64_t references) {
  // A relative lambda is that of the whole bank, also where a reference is left out.
  const Settings settings = scorer_settings(product, *patches.bank());
  std::vector<double> scores;
  for (const int32_t number : calibration_set(references)) {
    const BankBuilder rest = patches.without(number);
    Scorer scorer(rest.bank(), settings);
    const Query query{patches.features_of(number), patches.places_of(number, input.cols)};
    scores.push_back(score(scorer, query, input, product.pooling));
  }
  return conclude("leave-one-picture-out", scores, rounding(product, patches));
}

ProvisionalThreshold threshold_from_views(const Product& product, const BankBuilder& patches,
                                          FeatureExtractor& extractor, const Rgb& reference) {
  const std::shared_ptr<const Bank> bank = patches.bank();
  Scorer scorer(bank, scorer_settings(product, *bank));
  std::vector<double> scores;
  for (int number = 0; number < kJitterCount; ++number) {
    const std::vector<uint8_t> view =
        jittered(reference.pixels, reference.width, reference.height, number);
    const auto grid = extractor.extract({reference.width, reference.height, view.data()});
    const Query query = patches_with_signal(grid, extractor.input(), "a view of the reference");
    scores.push_back(score(scorer, query, extractor.input(), product.pooling));
  }
  return conclude("gentle augmentations of the only reference", scores, rounding(product, patches));
}

}  // namespace anoco
