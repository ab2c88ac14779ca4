/* Uses the C interface as a C99 program does. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "anoco_edge.h"
#include "tests/check.h"

/* Sanitizers replace the allocator. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNT_ALLOCATIONS 1
extern void* __libc_malloc(size_t size);
extern void* __libc_memalign(size_t alignment, size_t size);
static int allocations;
void* malloc(size_t size) {
  __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
  return __libc_malloc(size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
  return __libc_memalign(alignment, size);
}
#endif

enum { ROWS = 700, DIM = 48, QUERIES = 90 };

static float bank_features[ROWS * DIM], queries[QUERIES * DIM];

static uint32_t noise_state = 1;
static float noise(void) {
  noise_state = noise_state * 1664525u + 1013904223u;
  return (float)(noise_state >> 8) / 8388608.0f - 1.0f;
}

/* Patches around one of eight centers, or (far = 1) queries that resemble all references alike:
 * these have the whole bank as neighbors. */
static void fill_around(float spread, float far) {
  float centres[8 * DIM];
  noise_state = 1;
  for (int i = 0; i < 8 * DIM; ++i) centres[i] = noise();
  for (int i = 0; i < ROWS * DIM; ++i)
    bank_features[i] =
        4 * far + centres[i / DIM % 8 * DIM + i % DIM] * (1 - far) + spread * noise();
  for (int i = 0; i < QUERIES * DIM; ++i)
    queries[i] = centres[i / DIM % 8 * DIM + i % DIM] + spread * noise();
}

static void fill(void) { fill_around(1.0f, 0.0f); }

static anoco_bank_options whole_bank(void) {
  anoco_bank_options options = ANOCO_BANK_OPTIONS_INIT;
  options.features = bank_features;
  options.rows = ROWS;
  options.dim = DIM;
  return options;
}

typedef struct {
  float energy[QUERIES], similarity[QUERIES];
  int64_t anchor[QUERIES], neighbors[QUERIES];
} results;

static anoco_status score(anoco_scorer* scorer, const float* query, results* out) {
  return anoco_scorer_score(scorer, query, QUERIES, out->energy, out->anchor, out->similarity,
                            out->neighbors);
}

static void versions_and_words(void) {
  CHECK(anoco_abi_version() == ANOCO_ABI_VERSION);
  CHECK(strlen(anoco_version()) > 0 && strlen(anoco_kernels()) > 0);
  for (anoco_status status = ANOCO_OK; status <= ANOCO_INTERNAL + 1; ++status)
    CHECK(strlen(anoco_status_text(status)) > 0);
  CHECK(strcmp(anoco_status_text(ANOCO_OK), anoco_status_text(ANOCO_INTERNAL)) != 0);
}

/* One query and one reference, computed by hand: s = 0.6, alpha = 2 * 5 * 5 / 10 = 5, w = 3. */
static void a_case_on_paper(void) {
  const float reference[2] = {5, 0}, query[2] = {3, 4};
  anoco_bank_options bank = ANOCO_BANK_OPTIONS_INIT;
  anoco_scorer_options options = ANOCO_SCORER_OPTIONS_INIT;
  float energy, similarity;
  int64_t anchor, neighbors;
  bank.features = reference;
  bank.rows = 1;
  bank.dim = 2;
  options.metric = ANOCO_METRIC_L2;
  CHECK(anoco_score_patches(&bank, &options, query, 1, &energy, &anchor, &similarity, &neighbors) ==
        ANOCO_OK);
  /* drift = 3 (2, -4) / (1 + 3) */
  CHECK(fabsf(energy - 11.25f) < 1e-5f && anchor == 0 && neighbors == 1);
  CHECK(fabsf(similarity - 0.6f) < 1e-6f);
  options.metric = ANOCO_METRIC_COSINE; /* f~ = (4.5, 1): cos = (13.5 + 4) / (5 sqrt(21.25)) */
  CHECK(anoco_score_patches(&bank, &options, query, 1, &energy, 0, 0, 0) == ANOCO_OK);
  CHECK(fabsf(energy - (1.0f - 17.5f / (5.0f * sqrtf(21.25f)))) < 1e-6f);
}

static void refuse_bank(anoco_bank_options options, anoco_status expected, const char* text) {
  anoco_bank* bank = (anoco_bank*)&options;
  CHECK(anoco_bank_create(&options, &bank) == expected);
  CHECK(bank == (anoco_bank*)&options); /* untouched */
  CHECK(strstr(anoco_last_error(), text) != NULL);
}

static void what_cannot_be_a_bank(void) {
  anoco_bank_options options = whole_bank();
  options.struct_size = 2;
  refuse_bank(options, ANOCO_INVALID_ARGUMENT, "struct_size is 2");
  options = whole_bank();
  options.features = NULL;
  refuse_bank(options, ANOCO_INVALID_ARGUMENT, "features is null");
  options = whole_bank();
  options.rows = 0;
  refuse_bank(options, ANOCO_INVALID_ARGUMENT, "0 x 48");
  options = whole_bank();
  options.dim = INT64_MAX;
  refuse_bank(options, ANOCO_INVALID_ARGUMENT, "the bank is");
  options = whole_bank();
  options.type = 7;
  refuse_bank(options, ANOCO_INVALID_ARGUMENT, "type is 7");
  options = whole_bank();
  options.directions = DIM + 1;
  refuse_bank(options, ANOCO_INVALID_ARGUMENT, "directions is 49");
  CHECK(anoco_bank_create(NULL, NULL) == ANOCO_INVALID_ARGUMENT);

  const float spoilers[] = {NAN, INFINITY, -INFINITY, 1e11f};
  for (int k = 0; k < 4; ++k) {
    const float before = bank_features[5 * DIM + 7];
    bank_features[5 * DIM + 7] = spoilers[k];
    refuse_bank(whole_bank(), ANOCO_BAD_FEATURES, "reference patch 5 ");
    bank_features[5 * DIM + 7] = before;
  }
  float kept[DIM];
  memcpy(kept, bank_features, sizeof kept);
  memset(bank_features, 0, sizeof kept);
  refuse_bank(whole_bank(), ANOCO_BAD_FEATURES, "reference patch 0 has a zero norm");
  memcpy(bank_features, kept, sizeof kept);
}

static anoco_bank* make_bank(void) {
  anoco_bank_options options = whole_bank();
  anoco_bank* bank = NULL;
  CHECK(anoco_bank_create(&options, &bank) == ANOCO_OK);
  return bank;
}

static anoco_scorer* make_scorer(const anoco_bank* bank, uint32_t threads, uint32_t pin) {
  anoco_scorer_options options = ANOCO_SCORER_OPTIONS_INIT;
  anoco_scorer* scorer = NULL;
  options.threads = threads;
  options.pin = pin;
  CHECK(anoco_scorer_create(bank, &options, &scorer) == ANOCO_OK);
  return scorer;
}

static void refuse_scorer(const anoco_bank* bank, anoco_scorer_options options, const char* text) {
  anoco_scorer* scorer = (anoco_scorer*)&options;
  uint64_t bytes = 7;
  CHECK(anoco_scorer_create(bank, &options, &scorer) == ANOCO_INVALID_ARGUMENT);
  CHECK(strstr(anoco_last_error(), text) != NULL);
  CHECK(anoco_scorer_query_memory(bank, &options, &bytes) == ANOCO_INVALID_ARGUMENT);
  CHECK(scorer == (anoco_scorer*)&options && bytes == 7);
}

static void what_cannot_be_a_scorer(void) {
  anoco_bank* bank = make_bank();
  anoco_scorer_options options = ANOCO_SCORER_OPTIONS_INIT;
  const double lambdas[] = {0, -1, NAN, INFINITY, 1e30};
  for (int k = 0; k < 5; ++k) {
    options.lambda = lambdas[k];
    refuse_scorer(bank, options, "lambda is");
  }
  options.lambda = 1;
  options.floor = NAN;
  refuse_scorer(bank, options, "floor is");
  options.floor = 0;
  options.metric = 3;
  refuse_scorer(bank, options, "metric is 3; use ANOCO_METRIC_PRODUCT");
  options.metric = 0;
  options.threads = 5000;
  refuse_scorer(bank, options, "threads is 5000");
  anoco_bank_destroy(bank);
  anoco_bank_destroy(NULL);
  anoco_scorer_destroy(NULL);
}

static void a_bad_query_leaves_the_outputs_alone(void) {
  anoco_bank* bank = make_bank();
  anoco_scorer* scorer = make_scorer(bank, 2, 0);
  results out, before;
  memset(&out, 0x55, sizeof out);
  before = out;
  const float kept = queries[(QUERIES - 1) * DIM];
  queries[(QUERIES - 1) * DIM] = NAN;
  CHECK(score(scorer, queries, &out) == ANOCO_BAD_FEATURES);
  CHECK(strstr(anoco_last_error(), "query patch 89 contains NaN") != NULL);
  queries[(QUERIES - 1) * DIM] = kept;
  CHECK(anoco_scorer_score(scorer, NULL, 3, out.energy, 0, 0, 0) == ANOCO_INVALID_ARGUMENT);
  CHECK(anoco_scorer_score(scorer, queries, -1, out.energy, 0, 0, 0) == ANOCO_INVALID_ARGUMENT);
  CHECK(anoco_scorer_score(scorer, NULL, 0, out.energy, 0, 0, 0) == ANOCO_OK);
  CHECK(memcmp(&out, &before, sizeof out) == 0);
  anoco_scorer_destroy(scorer);
  anoco_bank_destroy(bank);
}

static void a_bank_that_changes_under_the_scorer_gives_no_score(void) {
  anoco_bank* bank = make_bank();
  anoco_scorer* scorer = make_scorer(bank, 1, 0);
  results out;
  const float kept = bank_features[0];
  for (int j = 0; j < ROWS; ++j) bank_features[j * DIM] = NAN;
  CHECK(score(scorer, queries, &out) == ANOCO_CORRUPT);
  for (int j = 0; j < ROWS; ++j) bank_features[j * DIM] = kept;
  anoco_scorer_destroy(scorer);
  anoco_bank_destroy(bank);
  fill();
}

/* The bank may be destroyed before its scorers, and a copied one does not need the features. */
static void the_same_bits_whatever_the_threads(int32_t directions) {
  anoco_bank_options options = whole_bank();
  anoco_bank* bank = NULL;
  results first, other;
  options.copy = 1;
  options.directions = directions;
  CHECK(anoco_bank_create(&options, &bank) == ANOCO_OK);
  anoco_scorer *one = make_scorer(bank, 1, 0), *three = make_scorer(bank, 3, 1);
  anoco_bank_destroy(bank);
  memset(bank_features, 0, sizeof bank_features);
  CHECK(score(one, queries, &first) == ANOCO_OK);
  for (int k = 0; k < 5; ++k) {
    CHECK(score(three, queries, &other) == ANOCO_OK);
    CHECK(memcmp(&first, &other, sizeof first) == 0);
  }
  CHECK(anoco_scorer_retrieval_share(one) > 0 && anoco_scorer_retrieval_share(one) < 1);
  anoco_scorer_destroy(one);
  anoco_scorer_destroy(three);
}

/* Leaving references out early must not change the results. */
static void the_same_scores_with_and_without_a_projection(void) {
  anoco_bank_options options = whole_bank();
  anoco_scorer_options defaults = ANOCO_SCORER_OPTIONS_INIT;
  results all, pruned;
  options.directions = 0;
  CHECK(anoco_score_patches(&options, &defaults, queries, QUERIES, all.energy, all.anchor,
                            all.similarity, all.neighbors) == ANOCO_OK);
  options.directions = 8;
  CHECK(anoco_score_patches(&options, &defaults, queries, QUERIES, pruned.energy, pruned.anchor,
                            pruned.similarity, pruned.neighbors) == ANOCO_OK);
  for (int i = 0; i < QUERIES; ++i) {
    CHECK(all.anchor[i] == pruned.anchor[i] && all.neighbors[i] == pruned.neighbors[i]);
    CHECK(fabsf(all.energy[i] - pruned.energy[i]) <= 1e-4f * all.energy[i]);
  }
}

static void every_road(void) {
  for (int32_t directions = 0; directions <= 8; directions += 8) {
    fill_around(0.1f, 0.0f);
    the_same_bits_whatever_the_threads(directions);
    fill_around(0.1f, 1.0f);
    the_same_bits_whatever_the_threads(directions);
  }
  fill_around(0.1f, 0.0f);
  the_same_scores_with_and_without_a_projection();
  fill();
}

static void scoring_takes_no_memory(void) {
  anoco_bank* bank = make_bank();
  uint64_t bytes = 0;
  CHECK(anoco_scorer_query_memory(bank, NULL, &bytes) == ANOCO_OK && bytes > 100000);
  anoco_scorer* scorer = make_scorer(bank, 2, 0);
  results out;
#ifdef COUNT_ALLOCATIONS
  const int before = allocations;
  CHECK(before > 0);
#endif
  CHECK(score(scorer, queries, &out) == ANOCO_OK);
#ifdef COUNT_ALLOCATIONS
  CHECK(allocations == before);
#endif
  anoco_scorer_destroy(scorer);
  anoco_bank_destroy(bank);
}

static results expected;

static void* score_often(void* shared) {
  results out;
  for (int k = 0; k < 20; ++k) {
    CHECK(score((anoco_scorer*)shared, queries, &out) == ANOCO_OK);
    CHECK(memcmp(&out, &expected, sizeof out) == 0);
  }
  return NULL;
}

static void callers_side_by_side(void) {
  anoco_bank* bank = make_bank();
  anoco_scorer *shared = make_scorer(bank, 2, 0), *own = make_scorer(bank, 1, 0);
  pthread_t callers[3];
  CHECK(score(own, queries, &expected) == ANOCO_OK);
  for (int k = 0; k < 3; ++k)
    CHECK(pthread_create(&callers[k], NULL, score_often, k < 2 ? shared : own) == 0);
  for (int k = 0; k < 3; ++k) CHECK(pthread_join(callers[k], NULL) == 0);
  anoco_scorer_destroy(shared);
  anoco_scorer_destroy(own);
  anoco_bank_destroy(bank);
}

int main(void) {
  fill();
  versions_and_words();
  a_case_on_paper();
  what_cannot_be_a_bank();
  what_cannot_be_a_scorer();
  a_bad_query_leaves_the_outputs_alone();
  a_bank_that_changes_under_the_scorer_gives_no_score();
  every_road();
  scoring_takes_no_memory();
  callers_side_by_side();
  puts("ok");
  return 0;
}
