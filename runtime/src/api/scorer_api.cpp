// The C boundary of the scorer: arguments are checked, exceptions become a status.
#include <memory>
#include <string>

#include "api/boundary.hpp"
#include "scorer/scorer.hpp"

struct anoco_bank {
  std::shared_ptr<const anoco::Bank> bank;
};

struct anoco_scorer {
  anoco::Scorer scorer;
};

namespace {

using anoco::fail;
using anoco::guarded;
using anoco::need;
using anoco::read_options;
using anoco::scoring_memory;
using anoco::scoring_threads;

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
         "the bank is " + std::to_string(options.rows) + " x " + std::to_string(options.dim));
  if (options.directions < -1 || options.directions > options.dim)
    fail(ANOCO_INVALID_ARGUMENT,
         "directions is " + std::to_string(options.directions) + ": use -1, or 0 up to dim");
  return options;
}

anoco::Settings read_settings(const anoco_scorer_options* given) {
  const auto options = read_options(given, anoco_scorer_options ANOCO_SCORER_OPTIONS_INIT);
  if (options.metric > ANOCO_METRIC_COSINE)
    fail(ANOCO_INVALID_ARGUMENT, "metric is " + std::to_string(options.metric));
  if (!(options.lambda >= 1e-24 && options.lambda <= 1e24))
    fail(ANOCO_INVALID_ARGUMENT, "lambda is " + std::to_string(options.lambda) +
                                     ": it must be a number from 1e-24 to 1e24");
  if (!(options.floor >= 0 && options.floor < 1))
    fail(ANOCO_INVALID_ARGUMENT,
         "floor is " + std::to_string(options.floor) + ": it must lie in [0, 1)");
  anoco::Settings settings;
  settings.metric = options.metric;
  settings.lambda = options.lambda;
  settings.floor = options.floor;
  settings.threads = scoring_threads(options.threads);
  settings.memory = scoring_memory(options.memory_mb);
  settings.pin = options.pin != 0;
  return settings;
}

}  // namespace

extern "C" {

anoco_status anoco_bank_create(const anoco_bank_options* options, anoco_bank** out) {
  return guarded([&] {
    need(out, "out");
    auto bank = std::make_shared<const anoco::Bank>(read_bank(options));
    *out = new anoco_bank{std::move(bank)};
  });
}

void anoco_bank_destroy(anoco_bank* bank) { delete bank; }

anoco_status anoco_scorer_query_memory(const anoco_bank* bank, const anoco_scorer_options* options,
                                       uint64_t* bytes) {
  return guarded([&] {
    need(bank, "bank");
    need(bytes, "bytes");
    *bytes = uint64_t(anoco::Layout(*bank->bank, read_settings(options)).bytes);
  });
}

anoco_status anoco_scorer_create(const anoco_bank* bank, const anoco_scorer_options* options,
                                 anoco_scorer** out) {
  return guarded([&] {
    need(bank, "bank");
    need(out, "out");
    *out = new anoco_scorer{{bank->bank, read_settings(options)}};
  });
}

void anoco_scorer_destroy(anoco_scorer* scorer) { delete scorer; }

anoco_status anoco_scorer_score(anoco_scorer* scorer, const float* query, int64_t rows,
                                float* energy, int64_t* anchor, float* similarity,
                                int64_t* neighbors) {
  return guarded([&] {
    need(scorer, "scorer");
    if (rows < 0) fail(ANOCO_INVALID_ARGUMENT, "rows is " + std::to_string(rows));
    if (rows > 0) need(query, "query");
    scorer->scorer.score(query, rows, {energy, anchor, similarity, neighbors});
  });
}

double anoco_scorer_retrieval_share(const anoco_scorer* scorer) {
  return scorer == nullptr ? 0 : scorer->scorer.retrieval_share();
}

anoco_status anoco_score_patches(const anoco_bank_options* bank,
                                 const anoco_scorer_options* options, const float* query,
                                 int64_t rows, float* energy, int64_t* anchor, float* similarity,
                                 int64_t* neighbors) {
  return guarded([&] {
    if (rows < 0) fail(ANOCO_INVALID_ARGUMENT, "rows is " + std::to_string(rows));
    if (rows > 0) need(query, "query");
    const anoco::Settings settings = read_settings(options);
    anoco::Scorer scorer(std::make_shared<const anoco::Bank>(read_bank(bank)), settings);
    scorer.score(query, rows, {energy, anchor, similarity, neighbors});
  });
}

}  // extern "C"
