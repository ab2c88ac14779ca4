// The threshold that enrolment sets until a calibration replaces it, as anoco_edge/threshold.py
// explains it: from the references alone, without a promise.
#pragma once

#include <vector>

#include "bundle/json.hpp"
#include "bundle/schema.hpp"
#include "teaching/bank_builder.hpp"
#include "teaching/feature_extractor.hpp"

namespace anoco {

struct ProvisionalThreshold {
  double value = 0;  // 0: none, because the pictures show no difference
  Json document;     // as product.json has it
};

// Each reference (of many: some) against all others; of two or more.
ProvisionalThreshold threshold_from_references(const Product& product, const BankBuilder& patches,
                                               int64_t references);

// Gentle views of the only reference against it.
ProvisionalThreshold threshold_from_views(const Product& product, const BankBuilder& patches,
                                          FeatureExtractor& extractor, const Rgb& reference);

// Which of so many references are scored: all, or 32 of them, evenly spaced.
std::vector<int32_t> calibration_set(int64_t references);

}  // namespace anoco
