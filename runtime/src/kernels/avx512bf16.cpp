// AVX-512 BF16: two products of bfloat16 numbers in the time of one of float32.
#include "kernels/avx512_vector.hpp"
#include "kernels/kernels.hpp"

namespace anoco {
namespace {

constexpr int kRows = 12, kRegs = 2;  // those of the table avx512
constexpr int kLanes = V::kLanes;

__m512bh pairs_of(V::Reg v) { return (__m512bh)_mm512_castps_si512(v); }

V::Reg widened(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

__mmask16 first_lanes(int64_t count) {
  return count >= kLanes ? __mmask16(0xffff) : __mmask16((1u << (count > 0 ? count : 0)) - 1);
}

V::Reg load_first(const float* p, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, p); }
V::Reg load_first(const uint16_t* p, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}

template <class T>
float round(const T* x, int64_t count, float* out) {
  V::Reg squares = V::zero();
  for (int64_t k = 0; k < count; k += 2 * kLanes) {
    const V::Reg low = load_first(x + k, first_lanes(count - k));
    const V::Reg high = count - k > kLanes
                            ? load_first(x + k + kLanes, first_lanes(count - k - kLanes))
                            : V::zero();
    const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    const V::Reg low_error = V::sub(low, widened(_mm512_castsi512_si256(rounded)));
    const V::Reg high_error = V::sub(high, widened(_mm512_extracti64x4_epi64(rounded, 1)));
    squares = V::fma(low_error, low_error, squares);
    squares = V::fma(high_error, high_error, squares);
    _mm512_mask_storeu_ps(out + k / 2, first_lanes((count - k + 1) / 2),
                          _mm512_castsi512_ps(rounded));
  }
  return V::sum(squares);
}

void multiply_pairs(int64_t pairs, const float* a, const float* b, float* c, int64_t stride) {
  V::Reg sum[kRows][kRegs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kRegs; ++j) sum[i][j] = V::zero();
  for (int64_t k = 0; k < pairs; ++k, a += kRows, b += kRegs * kLanes) {
    V::Reg right[kRegs];
#pragma GCC unroll 8
    for (int j = 0; j < kRegs; ++j) right[j] = V::load(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V::Reg left = V::broadcast(a[i]);
#pragma GCC unroll 8
      for (int j = 0; j < kRegs; ++j)
        sum[i][j] = _mm512_dpbf16_ps(sum[i][j], pairs_of(left), pairs_of(right[j]));
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kRegs; ++j) V::store(c + i * stride + j * kLanes, sum[i][j]);
}

void bound(const float* products, const RoundedRow& row, const float* scales, const float* errors,
           int64_t count, float* out, float* maxima) {
  const V::Reg scale = V::broadcast(row.scale), factor = V::broadcast(row.factor);
  const V::Reg allowance = V::broadcast(row.allowance);
  for (int64_t block = 0; block < count; block += kBlock) {
    V::Reg most = V::broadcast(-__builtin_inff());
#pragma GCC unroll 4
    for (int64_t j = block; j < block + kBlock; j += kLanes) {
      const V::Reg error = V::fma(factor, V::load(errors + j), allowance);
      const V::Reg value = V::fma(V::mul(V::load(products + j), scale), V::load(scales + j), error);
      V::store(out + j, value);
      most = V::max(most, value);
    }
    maxima[block / kBlock] = V::largest(most);
  }
}

// One reference in each lane. The terms of a sum are added in the order in which `multiply` adds
// them, pass by pass.
template <class T>
void ordered_dots(const float* x, const void* const* rows, int64_t rows_count, int64_t count,
                  float* out) {
  for (int64_t first = 0; first < rows_count; first += kLanes) {
    const T* y[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const int64_t row = first + i < rows_count ? first + i : rows_count - 1;
      y[i] = static_cast<const T*>(rows[row]);
    }
    V::Reg total = V::zero();
    for (int64_t pass = 0; pass < count; pass += kDepth) {
      const int64_t end = pass + kDepth < count ? pass + kDepth : count;
      V::Reg sum = V::zero();
      for (int64_t k = pass; k < end; k += kLanes) {
        V::Reg square[kLanes];
        const __mmask16 mask = first_lanes(end - k);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) square[i] = load_first(y[i] + k, mask);
        V::transpose(square);
        if (end - k >= kLanes) {
#pragma GCC unroll 16
          for (int c = 0; c < kLanes; ++c) sum = V::fma(V::broadcast(x[k + c]), square[c], sum);
        } else {
          for (int64_t c = 0; c < end - k; ++c)
            sum = V::fma(V::broadcast(x[k + c]), square[c], sum);
        }
      }
      total = pass == 0 ? sum : V::add(total, sum);
    }
    _mm512_mask_storeu_ps(out + first, first_lanes(rows_count - first), total);
  }
}

}  // namespace

const RoundedKernels kBf16Kernels = {
    round<float>, round<uint16_t>,     multiply_pairs,
    bound,        ordered_dots<float>, ordered_dots<uint16_t>,
};

}  // namespace anoco
