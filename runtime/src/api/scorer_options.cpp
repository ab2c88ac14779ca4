#include "api/scorer_options.hpp"

#include <string>

#include "api/boundary.hpp"
#include "scorer/layout.hpp"

namespace anoco {

anoco_bank_options read_bank(const anoco_bank_options* given) {
  constexpr int64_t kMost = int64_t{1} << 40;
  need(given, "bank options");
  const auto options = read_options(given, anoco_bank_options ANOCO_BANK_OPTIONS_INIT);
  need(options.features, "features");
  if (options.type != ANOCO_FLOAT32 && options.type != ANOCO_FLOAT16)
    fail(ANOCO_INVALID_ARGUMENT,
         "type is " + std::to_string(options.type) + ": use ANOCO_FLOAT32 or ANOCO_FLOAT16");
  if (options.rows < 1 || options.dim < 1 || options.rows > kMost / options.dim)
    fail(ANOCO_INVALID_ARGUMENT,
         "the bank is " + std::to_string(options.rows) + " x " + std::to_string(options.dim),
         "give at least one row and one number in it, and at most 2^40 numbers");
  if (options.directions < -1 || options.directions > options.dim)
    fail(ANOCO_INVALID_ARGUMENT,
         "directions is " + std::to_string(options.directions) + ": use -1, or 0 up to dim");
  return options;
}

Settings read_settings(const anoco_scorer_options* given, int64_t memory) {
  const auto options = read_options(given, anoco_scorer_options ANOCO_SCORER_OPTIONS_INIT);
  check_reserved(options.reserved, "the scorer options'");
  if (options.metric > ANOCO_METRIC_COSINE)
    fail(ANOCO_INVALID_ARGUMENT, "metric is " + std::to_string(options.metric),
         "use ANOCO_METRIC_PRODUCT, ANOCO_METRIC_L2 or ANOCO_METRIC_COSINE");
  if (!is_valid_lambda(options.lambda))
    fail(ANOCO_INVALID_ARGUMENT, "lambda is " + std::to_string(options.lambda), kLambdaRule);
  if (!(options.floor >= 0 && options.floor < 1))
    fail(ANOCO_INVALID_ARGUMENT,
         "floor is " + std::to_string(options.floor) + ": it must lie in [0, 1)");
  Settings settings;
  settings.metric = options.metric;
  settings.lambda = options.lambda;
  settings.floor = options.floor;
  settings.threads = scoring_threads(options.threads);
  settings.memory = memory_of(options.memory_mb, memory);
  settings.pin = options.pin != 0;
  return settings;
}

}  // namespace anoco
