// The inner loops, one table of functions per instruction set, chosen once at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anoco {

// Columns whose largest value is kept beside a row of similarities, so that finding the next
// largest looks at one block and the maxima of the others. A multiple of every `nr`.
constexpr int64_t kBlock = 64;

// No table's `mr` is larger.
constexpr int64_t kMostPanelRows = 16;

// Depth of one pass of the matrix product. Sums of so many terms are rounded once more when they
// are added up, which keeps a similarity within 1e-6: longer passes add up in fewer, longer chains.
constexpr int64_t kDepth = 256;

// Rows r_k, in float32 or float16, and their weights.
struct Pull {
  int64_t rows;
  const float* weights;
  const void* const* row;
};

struct Kernels {
  const char* name;
  int64_t mr, nr;  // rows and columns that `multiply` holds in registers

  // c[mr x nr] = (add ? c : 0) + a b. `a` holds depth columns of mr numbers, `b` depth rows of nr.
  void (*multiply)(int64_t depth, const float* a, const float* b, float* c, int64_t stride,
                   bool add);

  // Up to mr rows, wherever they are, or nr rows of a row-major matrix, interleaved for `multiply`;
  // rows that are missing become zeros.
  void (*pack_a)(const float* const* rows, int64_t count, int64_t depth, float* out);
  void (*pack_b)(const float* rows, int64_t stride, int64_t count, int64_t depth, float* out);
  void (*pack_b_half)(const uint16_t* rows, int64_t stride, int64_t count, int64_t depth,
                      float* out);
  // The same for a matrix whose rows run along the depth: nr columns of `depth` rows.
  void (*slice_b)(const float* rows, int64_t stride, int64_t count, int64_t depth, float* out);
  void (*slice_b_half)(const uint16_t* rows, int64_t stride, int64_t count, int64_t depth,
                       float* out);

  void (*widen)(const uint16_t* half, int64_t count, float* out);
  // Sum of squares in float64; NaN or infinity where the row has one.
  double (*squares)(const float* x, int64_t count);
  // |x/|x| - y/|y||^2 in float64, from the inverse lengths.
  double (*chord)(const float* x, double x_inverse, const float* y, double y_inverse,
                  int64_t count);
  float (*dot)(const float* x, const float* y, int64_t count);
  float (*dot_half)(const float* x, const uint16_t* y, int64_t count);
  // The same for several rows at once, in the same bits: while one comes, others are on their way.
  void (*dots)(const float* x, const void* const* rows, int64_t rows_count, int64_t count,
               float* out);
  void (*dots_half)(const float* x, const void* const* rows, int64_t rows_count, int64_t count,
                    float* out);

  // drift = sum_k weight_k (r_k - q), moved = stay q + sum_k weight_k r_k. `moved` may be q.
  void (*pull)(const Pull& sum, float stay, const float* q, int64_t count, float* drift,
               float* moved);
  void (*pull_half)(const Pull& sum, float stay, const float* q, int64_t count, float* drift,
                    float* moved);

  // out = values scale scales[j], and the maximum of each kBlock of them. `count` is a multiple of
  // kBlock.
  void (*scale)(const float* values, float scale, const float* scales, int64_t count, float* out,
                float* maxima);

  // The lowest index of the largest of `count` values; some index where one is NaN.
  int64_t (*argmax)(const float* values, int64_t count);

  // A bit for each of kBlock values that is `bound` or more.
  uint64_t (*at_least)(const float* values, float bound);
};

extern const Kernels kScalarKernels;
#if defined(ANOCO_X86)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#elif defined(ANOCO_ARM)
extern const Kernels kNeonKernels;
#endif

// The tables this processor runs, fastest first; null where one is not for it.
constexpr int kTables = 3;
const Kernels* kernels_by_rank(int rank);

// The fastest table this processor runs, or the one named by ANOCO_EDGE_KERNELS (scalar, avx2,
// avx512, neon) where it can run that.
const Kernels& kernels();

}  // namespace anoco
