// The C boundary of the scorer: arguments are checked, exceptions become a status.
#include <memory>
#include <string>

#include "api/boundary.hpp"
#include "api/scorer_options.hpp"
#include "scorer/scorer.hpp"

struct anoco_bank {
  std::shared_ptr<const anoco::Bank> bank;
};

struct anoco_scorer {
  anoco::Scorer scorer;
};

using namespace anoco;

extern "C" {

anoco_status anoco_bank_create(const anoco_bank_options* options, anoco_bank** out) {
  return guarded([&] {
    need(out, "out");
    auto bank = std::make_shared<const Bank>(read_bank(options));
    bank->projection();  // compute it now, not with the first scorer
    *out = new anoco_bank{std::move(bank)};
  });
}

void anoco_bank_destroy(anoco_bank* bank) { delete bank; }

anoco_status anoco_scorer_query_memory(const anoco_bank* bank, const anoco_scorer_options* options,
                                       uint64_t* bytes) {
  return guarded([&] {
    need(bank, "bank");
    need(bytes, "bytes");
    *bytes = uint64_t(Scorer::bytes(bank->bank, read_settings(options, kDefaultMemory)));
  });
}

anoco_status anoco_scorer_create(const anoco_bank* bank, const anoco_scorer_options* options,
                                 anoco_scorer** out) {
  return guarded([&] {
    need(bank, "bank");
    need(out, "out");
    *out = new anoco_scorer{{bank->bank, read_settings(options, kDefaultMemory)}};
  });
}

void anoco_scorer_destroy(anoco_scorer* scorer) { delete scorer; }

anoco_status anoco_scorer_score(anoco_scorer* scorer, const float* query, int64_t rows,
                                float* energy, int64_t* anchor, float* similarity,
                                int64_t* neighbors) {
  return guarded([&] {
    need(scorer, "scorer");
    if (rows < 0) fail(ANOCO_INVALID_ARGUMENT, "rows is " + std::to_string(rows), "give 0 or more");
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
    if (rows < 0) fail(ANOCO_INVALID_ARGUMENT, "rows is " + std::to_string(rows), "give 0 or more");
    if (rows > 0) need(query, "query");
    const Settings settings = read_settings(options, kDefaultMemory);
    anoco_bank_options once = read_bank(bank);
    // Finding directions takes as long as scoring three to five pictures against 2304 references.
    if (once.directions < 0) once.directions = 0;
    Scorer scorer(std::make_shared<const Bank>(once), settings);
    scorer.score(query, rows, {energy, anchor, similarity, neighbors});
  });
}

}  // extern "C"
