/* anoco_edge.h - the native ANoCo scorer behind a C interface.
 *
 * Ownership. What an anoco_*_create gives belongs to the caller, who returns it to the matching
 * anoco_*_destroy; destroying NULL does nothing. Text that is returned belongs to the library.
 *
 * Errors. Functions that can fail return an anoco_status. On anything but ANOCO_OK the output
 * arguments are as they were (one exception: ANOCO_CORRUPT), and anoco_last_error says in the
 * calling thread what was wrong with which value. Nothing throws, exits or prints.
 *
 * Versions. Structs begin with their size, filled in by their INIT macro; later versions only
 * append fields and functions. anoco_abi_version changes when something breaks.
 *
 * Threads. A bank is immutable: any number of scorers, in any threads, may share it. Calls that
 * concern one scorer wait for each other; use one scorer per thread to score side by side. A
 * scorer owns threads, so it does not survive fork().
 */
#ifndef ANOCO_EDGE_H
#define ANOCO_EDGE_H

#include <stdint.h>

#if defined(__GNUC__)
#define ANOCO_API __attribute__((visibility("default")))
#else
#define ANOCO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ANOCO_ABI_VERSION 1

typedef int32_t anoco_status;
enum {
  ANOCO_OK = 0,
  ANOCO_INVALID_ARGUMENT = 1, /* a null pointer, a size or an option out of range */
  ANOCO_BAD_FEATURES = 2,     /* NaN, infinity, or a row whose length is outside 1e-10 to 1e10 */
  ANOCO_OUT_OF_MEMORY = 3,
  ANOCO_NO_THREADS = 4, /* the system refuses to start a thread */
  ANOCO_CORRUPT = 5,    /* an energy came out as NaN: the bank's memory was changed under it */
  ANOCO_INTERNAL = 6    /* a defect of this library */
};

enum { ANOCO_FLOAT32 = 1, ANOCO_FLOAT16 = 2 };

enum { ANOCO_METRIC_PRODUCT = 0, ANOCO_METRIC_L2 = 1, ANOCO_METRIC_COSINE = 2 };

typedef struct anoco_bank anoco_bank;
typedef struct anoco_scorer anoco_scorer;

/* The version of this interface; equal to ANOCO_ABI_VERSION where header and library fit. */
ANOCO_API uint32_t anoco_abi_version(void);

/* The version of the library, such as "0.1.0". */
ANOCO_API const char* anoco_version(void);

/* The instruction set that was chosen for this processor, such as "avx512". */
ANOCO_API const char* anoco_kernels(void);

/* A status in words. Never NULL. */
ANOCO_API const char* anoco_status_text(anoco_status status);

/* What went wrong in the last failed call of this thread; "" before the first. Valid until the
 * thread's next failed call. */
ANOCO_API const char* anoco_last_error(void);

/* Reference patches: `rows` raw features of `dim` numbers, row-major, without gaps. */
typedef struct anoco_bank_options {
  uint32_t struct_size;
  uint32_t type;        /* ANOCO_FLOAT32 or ANOCO_FLOAT16 (IEEE binary16) */
  const void* features; /* borrowed, see `copy` */
  int64_t rows;
  int64_t dim;
  /* 0: the features are used where they are, and must neither change nor go away before the bank
   * and every scorer made from it are destroyed. 1: the bank keeps a copy. */
  uint32_t copy;
  /* How many directions the bank is projected on, so that references which cannot matter are left
   * out; the results stay exact. 0: none, every product is computed. -1: the library chooses. */
  int32_t directions;
} anoco_bank_options;

#define ANOCO_BANK_OPTIONS_INIT {sizeof(anoco_bank_options), ANOCO_FLOAT32, 0, 0, 0, 0, -1}

/* Checks every row (ANOCO_BAD_FEATURES names the first bad one) and computes norms. */
ANOCO_API anoco_status anoco_bank_create(const anoco_bank_options* options, anoco_bank** out);

/* Scorers made from the bank keep what they need; borrowed features must outlive them too. */
ANOCO_API void anoco_bank_destroy(anoco_bank* bank);

typedef struct anoco_scorer_options {
  uint32_t struct_size;
  uint32_t metric;  /* ANOCO_METRIC_... */
  double lambda;    /* 1e-24 to 1e24 */
  double floor;     /* at least 0, below 1 */
  uint32_t threads; /* 0: one for each processor this process may use */
  /* Room for intermediate results, in millions of bytes; 0: 48. A guide: at least a few rows of
   * similarities are kept, see anoco_scorer_query_memory. */
  uint32_t memory_mb;
  uint32_t pin;      /* 1: each worker thread stays on one processor; the caller's is left alone */
  uint32_t reserved; /* 0 */
} anoco_scorer_options;

#define ANOCO_SCORER_OPTIONS_INIT \
  {sizeof(anoco_scorer_options), ANOCO_METRIC_PRODUCT, 1.0, 0.05, 0, 0, 0, 0}

/* Bytes that anoco_scorer_create would take, the stacks of its threads left out. */
ANOCO_API anoco_status anoco_scorer_query_memory(const anoco_bank* bank,
                                                 const anoco_scorer_options* options,
                                                 uint64_t* bytes);

/* Takes all memory and starts all threads that scoring needs. NULL options: the defaults. */
ANOCO_API anoco_status anoco_scorer_create(const anoco_bank* bank,
                                           const anoco_scorer_options* options, anoco_scorer** out);

ANOCO_API void anoco_scorer_destroy(anoco_scorer* scorer);

/* Scores `rows` query patches of the bank's `dim` numbers. Each output holds `rows` values, or is
 * NULL where it is not wanted: the energy, the row of the bank that is most similar (the lowest on
 * a tie), its cosine, and how many references are neighbours. Allocates nothing. The results are
 * the same bits whatever the number of threads. */
ANOCO_API anoco_status anoco_scorer_score(anoco_scorer* scorer, const float* query, int64_t rows,
                                          float* energy, int64_t* anchor, float* similarity,
                                          int64_t* neighbors);

/* The share of the last call's time that went into anchors and neighbours, 0 to 1. */
ANOCO_API double anoco_scorer_retrieval_share(const anoco_scorer* scorer);

/* Bank, scorer and score in one call, for a single use. */
ANOCO_API anoco_status anoco_score_patches(const anoco_bank_options* bank,
                                           const anoco_scorer_options* options, const float* query,
                                           int64_t rows, float* energy, int64_t* anchor,
                                           float* similarity, int64_t* neighbors);

#ifdef __cplusplus
}
#endif

#endif
