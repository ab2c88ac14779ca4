// Computes the threshold that enrollment sets until a calibration replaces it, as
// anoco_edge/teaching/provisional_threshold.py explains: from the references alone, without a
// guaranteed rate.
#pragma once

#include <vector>

#include "bundle/json.hpp"
#include "bundle/schema.hpp"
#include "teaching/bank_builder.hpp"
#include "teaching/feature_extractor.hpp"

namespace anoco {

struct ProvisionalThreshold {
  double value = 0;  // 0 if there is none, because the pictures show no difference
  Json document;     // as in product.json
};

// Scores each reference (or some, if there are many) against all others, of which there must be at
// least one.
ProvisionalThreshold threshold_from_references(const Product& product, const BankBuilder& patches,
                                               const InputContract& input, int64_t references);

// Scores small variations of the only reference against it.
ProvisionalThreshold threshold_from_views(const Product& product, const BankBuilder& patches,
                                          FeatureExtractor& extractor, const Rgb& reference);

// Returns the references that are scored: all, or 32 of them, evenly spaced.
std::vector<int32_t> calibration_set(int64_t references);

}  // namespace anoco
