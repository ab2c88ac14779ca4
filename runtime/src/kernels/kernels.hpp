// The inner loops, one table of functions per instruction set, chosen once at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anoco {

// Number of columns whose largest value is kept beside a row of similarities, so that finding the
// next largest value looks at one block and the maxima of the others. It is a multiple of every
// `nr`.
constexpr int64_t kBlock = 64;

// The largest `mr` of any table.
constexpr int64_t kMostPanelRows = 16;

// Depth of one pass of the matrix product. The sums of all passes are added up with one more
// rounding each, which keeps a similarity within 1e-6; longer passes would have longer chains.
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

  // Interleave up to mr rows, wherever they are, or nr rows of a row-major matrix, for `multiply`;
  // missing rows become zeros.
  void (*pack_a)(const float* const* rows, int64_t count, int64_t depth, float* out);
  void (*pack_b)(const float* rows, int64_t stride, int64_t count, int64_t depth, float* out);
  void (*pack_b_half)(const uint16_t* rows, int64_t stride, int64_t count, int64_t depth,
                      float* out);
  // Do the same for a matrix whose rows run along the depth: nr columns of `depth` rows.
  void (*slice_b)(const float* rows, int64_t stride, int64_t count, int64_t depth, float* out);
  void (*slice_b_half)(const uint16_t* rows, int64_t stride, int64_t count, int64_t depth,
                       float* out);

  void (*widen)(const uint16_t* half, int64_t count, float* out);
  // Returns the sum of squares in float64; NaN or infinity if the row contains one.
  double (*squares)(const float* x, int64_t count);
  // Returns |x/|x| - y/|y||^2 in float64, from the inverse lengths.
  double (*chord)(const float* x, double x_inverse, const float* y, double y_inverse,
                  int64_t count);
  float (*dot)(const float* x, const float* y, int64_t count);
  float (*dot_half)(const float* x, const uint16_t* y, int64_t count);
  // Do the same for several rows at once with the same bits, so that memory accesses overlap.
  void (*dots)(const float* x, const void* const* rows, int64_t rows_count, int64_t count,
               float* out);
  void (*dots_half)(const float* x, const void* const* rows, int64_t rows_count, int64_t count,
                    float* out);

  // Compute drift = sum_k weight_k (r_k - q) and moved = stay q + sum_k weight_k r_k. `moved` may
  // be q.
  void (*pull)(const Pull& sum, float stay, const float* q, int64_t count, float* drift,
               float* moved);
  void (*pull_half)(const Pull& sum, float stay, const float* q, int64_t count, float* drift,
                    float* moved);

  // Computes out[j] = values[j] scale scales[j], and the maximum of each kBlock of them. `count` is
  // a multiple of kBlock.
  void (*scale)(const float* values, float scale, const float* scales, int64_t count, float* out,
                float* maxima);

  // Returns the lowest index of the largest of `count` values, or some index if a value is NaN.
  int64_t (*argmax)(const float* values, int64_t count);

  // Returns one bit for each of kBlock values, set if the value is at least `bound`.
  uint64_t (*at_least)(const float* values, float bound);
};

extern const Kernels kScalarKernels;
#if defined(ANOCO_X86)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#elif defined(ANOCO_ARM)
extern const Kernels kNeonKernels;
#endif

// Returns the tables that this processor can run, fastest first; null for those that it cannot.
constexpr int kTables = 3;
const Kernels* kernels_by_rank(int rank);

// Returns the fastest table that this processor can run, or the one named by ANOCO_EDGE_KERNELS
// (scalar, avx2, avx512, neon) if it can run that.
const Kernels& kernels();

}  // namespace anoco
