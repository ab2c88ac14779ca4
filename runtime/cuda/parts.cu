// Splits rows of float32 into parts of half precision, so that tensor cores multiply them.
//
// A row is scaled by a power of two, which is exact, so that its largest number is from 2^14 to
// 2^15. Each number is then split: x = hi + lo + rest, of which hi is the nearest number of half
// precision and lo the nearest to what hi leaves. A product of two rows is
//
//   q r ~ lo hi' + hi lo' + hi hi'
//
// three products of half precision, summed in float32 as one row of three times the length: the
// parts of a query lie as lo, hi, hi and those of a reference as hi, lo, hi. What is small comes
// first, because tensor cores cut sums off, and by less where there is less.
//
// How exact this is, of |q| |r|: |lo| <= 2^-11 |x| and |rest| <= 2^-22 |x| + 2^-25, the second term
// where lo is below the normal numbers of half precision. Left out are lo lo', which is at most
// 2^-22, and the rest of either side, at most 2^-22 each; 2^-25 beside a norm of at least 2^14 adds
// sqrt(dim) 2^-38. So a similarity is off by 3 2^-22 = 7.2e-7 at most, before sums are rounded, as
// those of FP16 features are (eps 2e-6). A decision compares two of them: eps is 3.5e-6.
//
// Similarities need no product without the scales. Those of the norms are the same, and a power of
// two changes no bit of a quotient: the kernels get the norms of the scaled rows beside the parts.
#include "gpu_kernels.h"
#include "half.cuh"
#include "reduce.cuh"

// The power of two that brings a number with these bits, without a sign, to 2^14 .. 2^15. A number
// so small that there is none gets the largest; its row is refused by its norm.
static __device__ __forceinline__ float scale_of(unsigned bits) {
  return __uint_as_float(min(2 * 127 + 14 - (bits >> 23), 254u) << 23);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_parts_f32(const float* x, const float* norms, int rows, int dim, int part_dim,
                    int of_bank, half_bits* parts, float* part_norms) {
  __shared__ unsigned scratch[kWarps];
  const int row = blockIdx.x;
  if (row >= rows) return;
  x += (long long)row * dim;
  parts += (long long)row * 3 * part_dim;
  unsigned largest = 0;
  for (int k = 4 * threadIdx.x; k < dim; k += 4 * ANOCO_GPU_BLOCK) {
    const FourFloats four = load_four(x, k, dim);
#pragma unroll
    for (int c = 0; c < 4; ++c)
      largest = Largest()(largest, __float_as_uint(four.at[c]) & 0x7fffffffu);
  }
  const float scale = scale_of(reduce(largest, Largest(), scratch));
  for (int k = 4 * threadIdx.x; k < part_dim; k += 4 * ANOCO_GPU_BLOCK) {
    const FourFloats four = load_four(x, k, dim);
    FourHalves high, low;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float number = __fmul_rn(four.at[c], scale);
      high.at[c] = narrow(number);
      low.at[c] = narrow(__fsub_rn(number, widen(high.at[c])));
    }
    *(FourHalves*)(parts + k) = of_bank ? high : low;
    *(FourHalves*)(parts + part_dim + k) = of_bank ? low : high;
    *(FourHalves*)(parts + 2 * part_dim + k) = high;
  }
  if (threadIdx.x == 0) part_norms[row] = __fmul_rn(norms[row], scale);
}
