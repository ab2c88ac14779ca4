// The vector type of AVX-512 F, BW, DQ, VL: sixteen numbers at a time. Every source file that
// includes it has its own copy, because each is compiled with its own flags.
#include <immintrin.h>

#include <cstdint>

namespace anoco {
namespace {

struct V {
  static constexpr int kLanes = 16;
  static constexpr int kDots = 4;
  using Reg = __m512;
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static Reg load_half(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg broadcast(float v) { return _mm512_set1_ps(v); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static void add_to(double* p, Reg v) {
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
    _mm512_storeu_pd(p, _mm512_add_pd(_mm512_loadu_pd(p), low));
    _mm512_storeu_pd(p + 8, _mm512_add_pd(_mm512_loadu_pd(p + 8), high));
  }
  static Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static uint64_t at_least(Reg a, Reg b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
  static float sum(Reg v) { return _mm512_reduce_add_ps(v); }
  static float largest(Reg v) { return _mm512_reduce_max_ps(v); }

  // Pairs of rows, pairs of pairs, then quarters of registers.
  static void transpose(Reg (&r)[16]) {
    Reg t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      r[i] = both(_mm512_unpacklo_pd(wide(t[i]), wide(t[i + 2])));
      r[i + 1] = both(_mm512_unpackhi_pd(wide(t[i]), wide(t[i + 2])));
      r[i + 2] = both(_mm512_unpacklo_pd(wide(t[i + 1]), wide(t[i + 3])));
      r[i + 3] = both(_mm512_unpackhi_pd(wide(t[i + 1]), wide(t[i + 3])));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
      t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
      t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
      t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
      r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
      r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
      r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
  }

 private:
  static __m512d wide(Reg v) { return _mm512_castps_pd(v); }
  static Reg both(__m512d v) { return _mm512_castpd_ps(v); }
};

}  // namespace
}  // namespace anoco
