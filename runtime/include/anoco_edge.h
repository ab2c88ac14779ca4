/* anoco_edge.h - ANoCo inspection behind a C interface: the whole pipeline from a picture to a
 * verdict, and its stages for programs that bring their own backbone.
 *
 *   anoco_bundle_open -> anoco_detector_open -> anoco_context_create -> anoco_inspect, again and
 *   again. anoco_detector_select changes to another product, anoco_enroll adds references to one.
 *   The stages: anoco_preprocess, anoco_score_patches (or bank and scorer), anoco_energy_map;
 *   anoco_cuda.h has the scorer for an NVIDIA device.
 *
 * Ownership. The caller owns what an anoco_*_create or anoco_*_open returns, and passes it to
 * the matching anoco_*_destroy; destroying NULL does nothing. Returned text belongs to the
 * library and lives as long as the object that returned it.
 *
 * Errors. Functions that can fail return an anoco_status. If a status is not ANOCO_OK, the
 * output arguments are unchanged (one exception: ANOCO_CORRUPT), and anoco_last_error, called in
 * the same thread, says what was wrong with which value. Nothing throws, exits or prints.
 *
 * Versions. Structs begin with their size, filled in by their INIT macro; later versions only
 * append fields and functions. Programs compiled with an older header run with a newer library.
 * A library refuses (ANOCO_INVALID_ARGUMENT) structs of a newer header, whose fields it does not
 * know, and input structs whose reserved fields are not 0. anoco_abi_version changes when
 * compatibility breaks.
 *
 * Threads. Bundles and banks are immutable, and a detector changes only in
 * anoco_detector_select, which may be called at any time, so any number of threads may share
 * them. Calls that concern one context or one scorer wait for each other; use one per thread to
 * work side by side. Contexts and scorers own threads, so they do not survive fork(). */
#ifndef ANOCO_EDGE_H
#define ANOCO_EDGE_H

#include <stddef.h>
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
  ANOCO_NO_THREADS = 4,   /* the system refuses to start a thread */
  ANOCO_CORRUPT = 5,      /* an energy is NaN because the bank's memory was changed meanwhile */
  ANOCO_INTERNAL = 6,     /* a defect of this library */
  ANOCO_BAD_BUNDLE = 7,   /* missing, damaged, or of a version this library does not know */
  ANOCO_NO_PRODUCT = 8,   /* the bundle has no product of that name, or it has no references yet */
  ANOCO_BAD_PICTURE = 9,  /* a size, shape or format that cannot be inspected */
  ANOCO_NO_BACKEND = 10,  /* the engine's library, or the device, is not on this machine */
  ANOCO_PARITY = 11,      /* the self-test failed: this engine computes different features */
  ANOCO_ENGINE = 12,      /* the engine failed while it ran */
  ANOCO_STORAGE = 13,     /* a file cannot be written */
  ANOCO_UNSUPPORTED = 14, /* only the Python tools can do this; the message says what */
  ANOCO_NO_RESULT = 15    /* the context's last inspection failed, or there was none */
};

enum { ANOCO_FLOAT32 = 1, ANOCO_FLOAT16 = 2 };

enum { ANOCO_METRIC_PRODUCT = 0, ANOCO_METRIC_L2 = 1, ANOCO_METRIC_COSINE = 2 };

typedef struct anoco_bank anoco_bank;
typedef struct anoco_scorer anoco_scorer;

/* Returns the version of this interface, which is ANOCO_ABI_VERSION if header and library match. */
ANOCO_API uint32_t anoco_abi_version(void);

/* Returns the version of the library, such as "0.1.0". */
ANOCO_API const char* anoco_version(void);

/* Returns the instruction set that was chosen for this processor, such as "avx512". */
ANOCO_API const char* anoco_kernels(void);

/* Returns a status in words, never NULL. */
ANOCO_API const char* anoco_status_text(anoco_status status);

/* Returns what went wrong in the last failed call of this thread, "" before the first. It is
 * valid until the thread's next failed call. */
ANOCO_API const char* anoco_last_error(void);

/* Reference patches: `rows` raw features of `dim` numbers, row-major, without gaps. */
typedef struct anoco_bank_options {
  uint32_t struct_size;
  uint32_t type;        /* ANOCO_FLOAT32 or ANOCO_FLOAT16 (IEEE binary16) */
  const void* features; /* borrowed, see `copy` */
  int64_t rows;
  int64_t dim;
  /* 0: the features are used in place, and must neither change nor be freed before the bank and
   * every scorer made from it are destroyed. 1: the bank keeps a copy. */
  uint32_t copy;
  /* The number of directions on which the bank is projected to find references that cannot
   * matter and are left out; the results stay exact. 0: none, every product is computed. -1: the
   * library chooses. */
  int32_t directions;
} anoco_bank_options;

#define ANOCO_BANK_OPTIONS_INIT \
  { sizeof(anoco_bank_options), ANOCO_FLOAT32, 0, 0, 0, 0, -1 }

/* Checks every row (ANOCO_BAD_FEATURES names the first bad one) and computes the norms. */
ANOCO_API anoco_status anoco_bank_create(const anoco_bank_options* options, anoco_bank** out);

/* Destroys the bank. Scorers made from it keep what they need; borrowed features must outlive
   them too. */
ANOCO_API void anoco_bank_destroy(anoco_bank* bank);

typedef struct anoco_scorer_options {
  uint32_t struct_size;
  uint32_t metric;  /* ANOCO_METRIC_... */
  double lambda;    /* 1e-24 to 1e24 */
  double floor;     /* at least 0, below 1 */
  uint32_t threads; /* 0: one for each processor that this process may use */
  /* Memory for intermediate results, in millions of bytes; 0: 48. It is a guide: at least a few
   * rows of similarities are kept, and threads beyond the fourth need more, see
   * anoco_scorer_query_memory. */
  uint32_t memory_mb;
  uint32_t pin;      /* 1: each worker thread stays on one processor; the caller's is left alone */
  uint32_t reserved; /* 0 */
} anoco_scorer_options;

#define ANOCO_SCORER_OPTIONS_INIT \
  { sizeof(anoco_scorer_options), ANOCO_METRIC_PRODUCT, 1.0, 0.05, 0, 0, 0, 0 }

/* Computes the bytes that anoco_scorer_create would allocate, without the stacks of its threads. */
ANOCO_API anoco_status anoco_scorer_query_memory(const anoco_bank* bank,
                                                 const anoco_scorer_options* options,
                                                 uint64_t* bytes);

/* Allocates all memory and starts all threads that scoring needs. NULL options: the defaults. */
ANOCO_API anoco_status anoco_scorer_create(const anoco_bank* bank,
                                           const anoco_scorer_options* options, anoco_scorer** out);

ANOCO_API void anoco_scorer_destroy(anoco_scorer* scorer);

/* Scores `rows` query patches of the bank's `dim` numbers. Each output has room for `rows`
 * values, or is NULL if it is not wanted: the energy, the row of the bank that is most similar
 * (the lowest on a tie), its cosine, and the number of neighbours. It allocates nothing. The
 * results are the same bits for any number of threads. */
ANOCO_API anoco_status anoco_scorer_score(anoco_scorer* scorer, const float* query, int64_t rows,
                                          float* energy, int64_t* anchor, float* similarity,
                                          int64_t* neighbors);

/* Returns the share of the last call's time that was spent on anchors and neighbours, 0 to 1. */
ANOCO_API double anoco_scorer_retrieval_share(const anoco_scorer* scorer);

/* Creates a bank and a scorer and scores in one call, for a single use: where `directions` is -1
   the bank is not projected, because that pays only for many calls. */
ANOCO_API anoco_status anoco_score_patches(const anoco_bank_options* bank,
                                           const anoco_scorer_options* options, const float* query,
                                           int64_t rows, float* energy, int64_t* anchor,
                                           float* similarity, int64_t* neighbors);

/* ---- Pictures ---- */

enum {
  ANOCO_RGB = 1,
  ANOCO_BGR = 2,
  ANOCO_RGBA = 3, /* alpha is ignored */
  ANOCO_BGRA = 4,
  ANOCO_GREY = 5,
  ANOCO_NV12 = 6 /* as cameras and video decoders give it; even sizes; see matrix and range */
};

/* How NV12 is turned into RGB: by the matrix of BT.601 (standard definition, most cameras) or
 * BT.709 (high definition), and with luma from 16 to 235 or from 0 to 255. */
enum { ANOCO_BT601 = 0, ANOCO_BT709 = 1 };
enum { ANOCO_LIMITED_RANGE = 0, ANOCO_FULL_RANGE = 1 };

enum { ANOCO_HOST = 0, ANOCO_DEVICE = 1 };

/* A picture in the caller's memory with 8 bits per channel, which is only read. It has at least
 * 16 and at most 32768 pixels on each side, and at most 100 million in all (ANOCO_BAD_PICTURE). */
typedef struct anoco_image {
  uint32_t struct_size;
  uint32_t format;
  const void* data; /* the first row; NV12: the luma */
  int64_t width;
  int64_t height;
  int64_t stride;        /* bytes from row to row; 0: no gaps */
  const void* chroma;    /* NV12: the rows of U, V pairs; NULL: right after the luma's rows */
  int64_t chroma_stride; /* 0: the same as stride */
  /* ANOCO_HOST, or ANOCO_DEVICE: `data` and `chroma` point to memory of the CUDA device that the
   * detector scores on, or to page-locked (mapped) or managed memory, which is read in place; on
   * a Jetson that saves the copy. The picture must be complete, so wait for the stream that
   * makes it. */
  uint32_t memory;
  uint32_t reserved; /* 0 */
  uint32_t matrix;   /* NV12: ANOCO_BT601 or ANOCO_BT709; other formats: 0 */
  uint32_t range;    /* NV12: ANOCO_LIMITED_RANGE or ANOCO_FULL_RANGE; other formats: 0 */
} anoco_image;

#define ANOCO_IMAGE_INIT \
  { sizeof(anoco_image), ANOCO_RGB, 0, 0, 0, 0, 0, 0, ANOCO_HOST, 0, 0, 0 }

enum { ANOCO_STRETCH = 0, ANOCO_LETTERBOX = 1 };

/* The input of the model: pictures are resized to it. */
typedef struct anoco_input {
  uint32_t struct_size;
  uint32_t fit; /* ANOCO_STRETCH or ANOCO_LETTERBOX */
  int64_t width;
  int64_t height;
  uint8_t fill[4]; /* RGB beside a letterboxed picture; the fourth is 0 */
  uint32_t stride; /* pixels of one patch each way; width and height are multiples */
} anoco_input;

#define ANOCO_INPUT_INIT \
  { sizeof(anoco_input), ANOCO_STRETCH, 0, 0, {0, 0, 0, 0}, 1 }

/* Where the picture lies in the input, in pixels of the input. */
typedef struct anoco_placement {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t left;
  int64_t top;
  int64_t width;
  int64_t height;
} anoco_placement;

#define ANOCO_PLACEMENT_INIT \
  { sizeof(anoco_placement), 0, 0, 0, 0, 0 }

/* One stage of the pipeline: resizes the picture to the model's input, height x width x 3 bytes
 * of RGB without gaps, antialiased bilinear, bit for bit as Pillow 13 does. `placement` may be
 * NULL. It allocates memory during the call. */
ANOCO_API anoco_status anoco_preprocess(const anoco_image* image, const anoco_input* input,
                                        uint8_t* out, anoco_placement* placement);

/* One stage of the pipeline: turns rows x cols energies into a map of rows * stride x cols *
 * stride floats. `counted` has a byte for each patch that says whether it was scored; NULL: all.
 * It allocates memory during the call. */
ANOCO_API anoco_status anoco_energy_map(const float* energy, const uint8_t* counted, int64_t rows,
                                        int64_t cols, int64_t stride, float* out);

/* For metrics over the pixels of many maps: adds to `between` (thresholds + 1 numbers) how many
 * values lie below the first threshold, between two of them and above the last, and to `equal` how
 * many are equal to each. The values are `maps` arrays of sizes[i] numbers. Thresholds are distinct
 * and ascending, at least one and at most 2^29; all numbers are finite and at least 0. It allocates
 * memory during the call. */
ANOCO_API anoco_status anoco_count_values(const float* thresholds, int64_t threshold_count,
                                          const float* const* values, const int64_t* sizes,
                                          int64_t maps, int64_t* between, int64_t* equal);

/* ---- Bundles ---- */

typedef struct anoco_bundle anoco_bundle;

/* Reads NAME.anoco as it is now; products that are taught later appear when it is opened again. */
ANOCO_API anoco_status anoco_bundle_open(const char* path, anoco_bundle** out);
ANOCO_API void anoco_bundle_destroy(anoco_bundle* bundle);

ANOCO_API int64_t anoco_bundle_product_count(const anoco_bundle* bundle);
/* Returns the name of a product by number, in alphabetical order; NULL beyond the last. */
ANOCO_API const char* anoco_bundle_product(const anoco_bundle* bundle, int64_t number);

typedef struct anoco_bundle_info {
  uint32_t struct_size;
  uint32_t random_weights; /* 1: made for tests, so its verdicts mean nothing */
  const char* backbone;    /* such as "dinov3-l" */
  int64_t width;           /* of the model's input */
  int64_t height;
  int64_t rows; /* patches */
  int64_t cols;
  int64_t dim; /* features of a patch */
} anoco_bundle_info;

#define ANOCO_BUNDLE_INFO_INIT \
  { sizeof(anoco_bundle_info), 0, 0, 0, 0, 0, 0, 0 }

ANOCO_API anoco_status anoco_bundle_describe(const anoco_bundle* bundle, anoco_bundle_info* out);

/* ---- Detectors ---- */

typedef struct anoco_detector anoco_detector;

enum { ANOCO_LOG_INFO = 1, ANOCO_LOG_WARNING = 2 };

/* Receives messages for the user. It is called in the thread that called the library, and never
 * while a picture is inspected. It must not call the library. */
typedef void (*anoco_log)(void* user, int32_t level, const char* text);

typedef struct anoco_detector_options {
  uint32_t struct_size;
  uint32_t threads;    /* of the engine; 0: all processors */
  const char* product; /* NULL: the only one, or none if the bundle has none yet */
  /* NULL: "openvino"; "auto": "tensorrt" if it can be loaded and has a plan of the bundle for this
   * device, otherwise "openvino", whose `device` and `library` these are then; or one registered,
   * see anoco_backend.h */
  const char* backend;
  const char* device;  /* in the backend's words; NULL: "CPU" */
  const char* library; /* a file or folder with the backend's library; NULL: searched for */
  double threshold;    /* above 0: replaces that of the product */
  anoco_log log;       /* may be NULL; used until the detector is destroyed */
  void* log_user;
  uint32_t allow_random; /* 1: accept a bundle with random weights */
  uint32_t gpu;          /* number of the CUDA device for scorer and backend, counted from 0 */
  /* The placement of everything but the backbone: "cpu", or "cuda" (see anoco_cuda.h). NULL:
   * "cuda" if the backend keeps features on the device, otherwise "cpu". */
  const char* scorer;
  /* How the backend "openvino" computes on the processor: "auto", "fp32", "bf16" or "int8". NULL:
   * "auto", the precision that the product was taught in; without a product "bf16" if the
   * processor has it and the self-test passes, otherwise "fp32". "int8" is for INT8 graphs alone.
   * What is asked for by its name and is not there is an error. */
  const char* cpu_precision;
  /* 1: threads that wait for the CUDA device sleep (CU_CTX_SCHED_BLOCKING_SYNC), where the driver
   * may let them spin otherwise: fewer cycles of the processor, some microseconds more a picture.
   * It holds for the device in the whole process; set it before anything uses the device. */
  uint32_t blocking_sync;
  uint32_t reserved; /* 0 */
} anoco_detector_options;

#define ANOCO_DETECTOR_OPTIONS_INIT \
  { sizeof(anoco_detector_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Loads the backbone, runs the bundle's self-test and loads the product. NULL options: the
 * defaults. The bundle may be destroyed afterwards. */
ANOCO_API anoco_status anoco_detector_open(const anoco_bundle* bundle,
                                           const anoco_detector_options* options,
                                           anoco_detector** out);

/* Destroys the detector. Contexts made from it keep what they need. */
ANOCO_API void anoco_detector_destroy(anoco_detector* detector);

/* Changes to another product, or to a newer generation of the current one: reads it from disk
 * and prepares every context. A picture that is being inspected is finished with the old
 * product; every result belongs to exactly one product and names it. On failure nothing changes. */
ANOCO_API anoco_status anoco_detector_select(anoco_detector* detector, const char* product);

/* What a detector runs. The texts live as long as the detector. */
typedef struct anoco_detector_info {
  uint32_t struct_size;
  uint32_t reserved;
  const char* cpu_precision;        /* "fp32", "bf16" or "int8"; NULL: not on the processor */
  const char* cpu_precision_reason; /* why, in a few words; NULL likewise */
  const char* backend;              /* such as "tensorrt" */
  const char* backend_reason;
  const char* scorer; /* where all but the backbone runs: "cpu" or "cuda" */
  const char* scorer_reason;
} anoco_detector_info;

#define ANOCO_DETECTOR_INFO_INIT \
  { sizeof(anoco_detector_info), 0, 0, 0, 0, 0, 0, 0 }

ANOCO_API anoco_status anoco_detector_describe(const anoco_detector* detector,
                                               anoco_detector_info* out);

/* ---- Inspecting ---- */

typedef struct anoco_context anoco_context;

typedef struct anoco_context_options {
  uint32_t struct_size;
  uint32_t threads;   /* threads that score; 0: all processors */
  uint32_t memory_mb; /* see anoco_scorer_options; 0 on a CUDA device: a sixteenth of its memory */
  uint32_t pin;       /* see anoco_scorer_options */
  /* The largest picture that will be inspected; 0: the size of the references. */
  int64_t max_width;
  int64_t max_height;
} anoco_context_options;

#define ANOCO_CONTEXT_OPTIONS_INIT \
  { sizeof(anoco_context_options), 0, 0, 0, 0, 0 }

/* Computes the bytes that anoco_context_create would allocate, without those of the engine and
 * the stacks of threads, and on a CUDA device without the bank and its products, which contexts
 * share. While the product changes, twice as much may be in use. */
ANOCO_API anoco_status anoco_query_memory(const anoco_detector* detector,
                                          const anoco_context_options* options, uint64_t* bytes);

/* Allocates all memory that inspecting needs. NULL options: the defaults. */
ANOCO_API anoco_status anoco_context_create(anoco_detector* detector,
                                            const anoco_context_options* options,
                                            anoco_context** out);
ANOCO_API void anoco_context_destroy(anoco_context* context);

enum { ANOCO_UNCALIBRATED = 0, ANOCO_GOOD = 1, ANOCO_ANOMALOUS = 2 };

/* What a threshold is based on: the references alone, a calibration set of good parts, or a person.
 */
enum {
  ANOCO_THRESHOLD_NONE = 0,
  ANOCO_THRESHOLD_PROVISIONAL = 1,
  ANOCO_THRESHOLD_CONFORMAL = 2,
  ANOCO_THRESHOLD_MANUAL = 3
};

/* The result of an inspection. Pointers lead into the context and are valid until its next call
 * of anoco_inspect. Grids have rows x cols entries, 0 (anchor: -1) if a patch was not scored. */
typedef struct anoco_result {
  uint32_t struct_size;
  int32_t verdict;
  double score;
  double threshold; /* 0 if the verdict is ANOCO_UNCALIBRATED */
  double ratio;     /* score / threshold, 0 if the verdict is ANOCO_UNCALIBRATED */
  const char* product;
  int64_t generation;
  int64_t rows;
  int64_t cols;
  const float* energy;
  const int64_t* anchor; /* row of the bank */
  const float* similarity;
  const uint8_t* counted; /* 1: the patch was scored */
  int64_t map_width;      /* of the model's input, or of all tiles together */
  int64_t map_height;
  const float* map;
  const uint8_t* outline; /* 1: in a region; it has the size of the map */
  int64_t region_count;
  int64_t peak_row; /* the strongest patch */
  int64_t peak_col;
  int64_t picture_left; /* where the picture lies in the map */
  int64_t picture_top;
  int64_t picture_width;
  int64_t picture_height;
  int32_t threshold_kind; /* ANOCO_THRESHOLD_... */
  uint32_t reserved;
} anoco_result;

#define ANOCO_RESULT_INIT                                                                         \
  {                                                                                               \
    sizeof(anoco_result), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        0                                                                                         \
  }

/* Inspects one picture. It allocates nothing, with one exception: on a CUDA device a picture with a
 * new number of scored patches makes a new CUDA graph. `out` may be NULL. */
ANOCO_API anoco_status anoco_inspect(anoco_context* context, const anoco_image* image,
                                     anoco_result* out);

/* A defect, in pixels of the picture. */
typedef struct anoco_region {
  uint32_t struct_size;
  uint32_t reserved;
  double x0, y0, x1, y1;
  double area;
  double peak; /* largest value over the threshold: an energy, or a smoothed one */
  int64_t row; /* its patch of the largest energy */
  int64_t col;
} anoco_region;

#define ANOCO_REGION_INIT \
  { sizeof(anoco_region), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Returns the regions of the last inspection, strongest first. */
ANOCO_API anoco_status anoco_result_region(anoco_context* context, int64_t number,
                                           anoco_region* out);

/* The patch of a reference that a patch was compared with. Boxes are in pixels of the pictures. */
typedef struct anoco_evidence {
  uint32_t struct_size;
  uint32_t reserved;
  const char* reference; /* its name */
  const char* file; /* the picture, relative to the bundle's folder; valid as long as the result */
  int64_t row; /* of the reference picture itself, also where a turned view of it was compared */
  int64_t col;
  double x0, y0, x1, y1;
  double query_x0, query_y0, query_x1, query_y1;
  double similarity;
} anoco_evidence;

#define ANOCO_EVIDENCE_INIT \
  { sizeof(anoco_evidence), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

ANOCO_API anoco_status anoco_result_evidence(anoco_context* context, int64_t row, int64_t col,
                                             anoco_evidence* out);

/* Writes the map of the last inspection at the picture's size, height x width floats without
   gaps. */
ANOCO_API anoco_status anoco_result_map(anoco_context* context, float* out);

/* The times of the stages of the last inspection, in milliseconds. On a CUDA device, `scoring`
 * is all that follows the backbone there, and `map` what the CPU does after that. */
typedef struct anoco_timings {
  uint32_t struct_size;
  uint32_t reserved;
  double preprocess;
  double backbone;
  double scoring;
  double map; /* includes regions and verdict */
  double total;
} anoco_timings;

#define ANOCO_TIMINGS_INIT \
  { sizeof(anoco_timings), 0, 0, 0, 0, 0, 0 }

ANOCO_API anoco_status anoco_result_timings(anoco_context* context, anoco_timings* out);

/* ---- Teaching ---- */

typedef struct anoco_enroll_options {
  uint32_t struct_size;
  uint32_t reserved;        /* 0 */
  const char* product;      /* NULL: the only one, or "default" if there is none yet */
  const char* const* names; /* of the pictures; NULL: "frame-1.png" and so on */
} anoco_enroll_options;

#define ANOCO_ENROLL_OPTIONS_INIT \
  { sizeof(anoco_enroll_options), 0, 0, 0 }

typedef struct anoco_enrolled {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t added;      /* pictures */
  int64_t duplicates; /* pictures that were already references, or came twice */
  int64_t references; /* of the product now */
  int64_t patches;    /* in its bank */
  int64_t generation;
  double threshold; /* 0: none yet */
} anoco_enrolled;

#define ANOCO_ENROLLED_INIT \
  { sizeof(anoco_enrolled), 0, 0, 0, 0, 0, 0, 0 }

/* Adds pictures of good parts to a product of the detector's bundle, which is created if
 * necessary, and sets its provisional threshold, as `anoco-edge enroll` does. It adds all of the
 * pictures or none, whatever happens. It refuses what only Python can do (views, coresets,
 * calibrations). The detector uses the old state until anoco_detector_select. `out` may be NULL. */
ANOCO_API anoco_status anoco_enroll(anoco_detector* detector, const anoco_image* const* pictures,
                                    int64_t count, const anoco_enroll_options* options,
                                    anoco_enrolled* out);

#ifdef __cplusplus
}
#endif

#endif
