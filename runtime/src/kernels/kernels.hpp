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

// Depth of a sum in float32 of `multiply_sum`: each is added to a sum in float64.
constexpr int64_t kSumDepth = 128;

// The most rows with many neighbors that are weighed and solved at once. Their sums are chains, in
// which every addition waits for the one before; the chains of several rows run side by side.
constexpr int64_t kDenseTogether = 8;

// Rows r_k, in float32 or float16, and their weights.
struct Pull {
  int64_t rows;
  const float* weights;
  const void* const* row;
};

// How the similarities of a query with many neighbors become weights: those above the violator's
// count, and that of the anchor.
struct WeightRule {
  double norm, floor;
  float violator;
  int64_t anchor;
};
struct WeightSum {
  double sum;
  int64_t neighbors;
};

// A query, sum_j w_ij r_j, d_i = sum_j w_ij, lambda and the norm of the query.
struct DenseSum {
  const float *query, *pull;
  double weights, lambda, norm;
};
// |drift|^2 and |f~/|f~| - q/|q||^2 of such a query; f~ of length zero has no direction.
struct DenseChange {
  double drift_squares, chord;
  bool has_direction;
};

// A query whose products are turned into bounds.
struct RoundedRow {
  float scale, factor, allowance;
};

// Products of rows that were rounded to bfloat16, for processors that compute two of them in the
// time of one in float32. rounding.hpp says how far they are off. A pair of rounded numbers takes
// the place of a float, so that `pack_a` and `pack_b` interleave them.
struct RoundedKernels {
  // Round a row to (count + 1) / 2 pairs; return the sum of the squared errors.
  float (*round)(const float* x, int64_t count, float* out);
  float (*round_half)(const uint16_t* x, int64_t count, float* out);

  // Computes c[mr x nr] = a b, as Kernels::multiply does.
  void (*multiply)(int64_t pairs, const float* a, const float* b, float* c, int64_t stride);

  // Computes out[j] = products[j] scale scales[j] + factor errors[j] + allowance, and the maximum
  // of each kBlock of them. `count` is a multiple of kBlock.
  void (*bound)(const float* products, const RoundedRow& row, const float* scales,
                const float* errors, int64_t count, float* out, float* maxima);

  // Compute exact products with several rows, with the same bits as Kernels::multiply in passes of
  // kDepth. Sixteen rows take as long as one.
  void (*ordered_dots)(const float* x, const void* const* rows, int64_t rows_count, int64_t count,
                       float* out);
  void (*ordered_dots_half)(const float* x, const void* const* rows, int64_t rows_count,
                            int64_t count, float* out);
};

struct Kernels {
  const char* name;
  int64_t mr, nr;  // rows and columns that `multiply` holds in registers

  // c[mr x nr] = (add ? c : 0) + a b. `a` holds depth columns of mr numbers, `b` depth rows of nr.
  void (*multiply)(int64_t depth, const float* a, const float* b, float* c, int64_t stride,
                   bool add);

  // Computes sums[mr x nr] += a b, where kSumDepth products at a time are added up in float32.
  void (*multiply_sum)(int64_t depth, const float* a, const float* b, double* sums, int64_t stride);

  // Interleave up to mr rows, wherever they are, or nr rows of a row-major matrix, for `multiply`;
  // missing rows become zeros.
  void (*pack_a)(const float* const* rows, int64_t count, int64_t depth, float* out);
  void (*pack_b)(const float* rows, int64_t stride, int64_t count, int64_t depth, float* out);
  void (*pack_b_half)(const uint16_t* rows, int64_t stride, int64_t count, int64_t depth,
                      float* out);
  // Do the same for a matrix whose rows run along the depth: `count` columns of `depth` rows, nr
  // of them after the other. All columns of a row are read before the next row.
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

  // Turns the similarities of up to kDenseTogether rows into the weights w_ij, 0 for those that are
  // not neighbors, and adds up those of each row in float64 in their order.
  void (*weigh)(float* const* similarities, const WeightRule* rules, int64_t rows,
                const float* norms, int64_t count, WeightSum* out);

  // Solves up to kDenseTogether rows in float64.
  void (*solve_dense)(const DenseSum* sums, int64_t rows, int64_t count, DenseChange* out);

  // Computes out[j] = values[j] scale scales[j], and the maximum of each kBlock of them. `count` is
  // a multiple of kBlock.
  void (*scale)(const float* values, float scale, const float* scales, int64_t count, float* out,
                float* maxima);

  // Returns the lowest index of the largest of `count` values, or some index if a value is NaN.
  int64_t (*argmax)(const float* values, int64_t count);

  // Returns one bit for each of kBlock values, set if the value is at least `bound`.
  uint64_t (*at_least)(const float* values, float bound);

  // Null where the processor has no such products.
  const RoundedKernels* rounded;
};

extern const Kernels kScalarKernels;
#if defined(ANOCO_X86)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const RoundedKernels kBf16Kernels;
#elif defined(ANOCO_ARM)
extern const Kernels kNeonKernels;
#endif

// Returns the tables that this processor can run, fastest first; null for those that it cannot.
constexpr int kTables = 4;
const Kernels* kernels_by_rank(int rank);

// Returns the fastest table that this processor can run, or the one named by ANOCO_EDGE_KERNELS
// (scalar, avx2, avx512, avx512bf16, neon) if it can run that.
const Kernels& kernels();

}  // namespace anoco
