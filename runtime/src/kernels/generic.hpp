// The inner loops, written once over a vector type V. Each instruction set includes this header
// into a source file that is compiled with its own flags. V lives in an anonymous namespace there,
// so no instance is shared between files. Nothing of the standard library is used, because the
// linker might keep a copy of an inline function that was compiled for another processor.
//
// V provides: kLanes, kDots (rows of `dots`, each of which needs four registers), Reg, load, store,
// load_half, zero, broadcast, fma(a, b, c) = a b + c, add, add_to (numbers in float64), sub, mul,
// max, sum (of the lanes, in a fixed order), largest (lane), at_least (one bit per lane) and
// transpose (kLanes registers).

#include "kernels/dense.hpp"
#include "kernels/kernels.hpp"

namespace anoco {
namespace {

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 31u;
  uint32_t fraction = half & 0x3ffu;
  union {
    uint32_t bits;
    float value;
  } out;
  if (exponent == 0) {
    out.value = float(fraction) * 5.9604644775390625e-8f;  // 2^-24: exact, zero included
    out.bits |= sign;
    return out.value;
  }
  exponent = exponent == 31 ? 255 : exponent + 112;
  out.bits = sign | (exponent << 23) | (fraction << 13);
  return out.value;
}

inline float one(const float* from) { return *from; }
inline float one(const uint16_t* from) { return half_to_float(*from); }

template <class V>
inline typename V::Reg lanes(const float* from) {
  return V::load(from);
}
template <class V>
inline typename V::Reg lanes(const uint16_t* from) {
  return V::load_half(from);
}

// Numbers in a line of the cache, and how many numbers ahead loops fetch from the larger caches,
// where the processor alone would fetch too late.
constexpr int kLine = 16, kAhead = 128;

template <class V, int kRows, int kRegs>
__attribute__((always_inline)) inline void multiply_add(int64_t depth, const float* a,
                                                        const float* b,
                                                        typename V::Reg (&sum)[kRows][kRegs]) {
  constexpr int kCols = kRegs * V::kLanes;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kRegs; ++j) sum[i][j] = V::zero();
  for (int64_t k = 0; k < depth; ++k, a += kRows, b += kCols) {
    typename V::Reg right[kRegs];
#pragma GCC unroll 8
    for (int j = 0; j < kRegs; ++j) right[j] = V::load(b + j * V::kLanes);
    __builtin_prefetch(a + 4 * kAhead);
#pragma GCC unroll 8
    for (int j = 0; j < kCols; j += kLine) __builtin_prefetch(b + kAhead + j);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const typename V::Reg left = V::broadcast(a[i]);
#pragma GCC unroll 8
      for (int j = 0; j < kRegs; ++j) sum[i][j] = V::fma(left, right[j], sum[i][j]);
    }
  }
}

template <class V, int kRows, int kRegs>
void multiply(int64_t depth, const float* a, const float* b, float* c, int64_t stride, bool add) {
  typename V::Reg sum[kRows][kRegs];
  multiply_add<V, kRows, kRegs>(depth, a, b, sum);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kRegs; ++j) {
      float* at = c + i * stride + j * V::kLanes;
      V::store(at, add ? V::add(V::load(at), sum[i][j]) : sum[i][j]);
    }
}

template <class V, int kRows, int kRegs>
void multiply_sum(int64_t depth, const float* a, const float* b, double* sums, int64_t stride) {
  typename V::Reg sum[kRows][kRegs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kRegs * V::kLanes; j += kLine / 2)
      __builtin_prefetch(sums + i * stride + j, 1);
  for (int64_t from = 0; from < depth; from += kSumDepth) {
    const int64_t some = depth - from < kSumDepth ? depth - from : kSumDepth;
    multiply_add<V, kRows, kRegs>(some, a + from * kRows, b + from * kRegs * V::kLanes, sum);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kRegs; ++j) V::add_to(sums + i * stride + j * V::kLanes, sum[i][j]);
  }
}

// Handles kLanes numbers of each row at a time. What a store writes beyond its kWidth numbers is
// overwritten by the next store; the last numbers are written one by one, because the memory behind
// them belongs to somebody else.
template <class V, int kWidth>
void pack_rows(const float* const* rows, int64_t count, int64_t depth, float* out) {
  constexpr int kLanes = V::kLanes, kGroups = (kWidth + kLanes - 1) / kLanes;
  int64_t k = 0;
  for (; count == kWidth && k + kLanes < depth; k += kLanes) {
    typename V::Reg square[kGroups][kLanes];
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        if (g * kLanes + i < kWidth) __builtin_prefetch(rows[g * kLanes + i] + k + kAhead);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        square[g][i] = g * kLanes + i < kWidth ? V::load(rows[g * kLanes + i] + k) : V::zero();
      V::transpose(square[g]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) V::store(out + (k + i) * kWidth + g * kLanes, square[g][i]);
  }
  for (int64_t i = 0; i < kWidth; ++i)
    for (int64_t last = k; last < depth; ++last)
      out[last * kWidth + i] = i < count ? rows[i][last] : 0.0f;
}

// Interleaves kWidth rows: out[k * kWidth + i] = rows[i][k].
template <int kWidth, class T>
void pack_slowly(const T* rows, int64_t stride, int64_t count, int64_t depth, float* out) {
  for (int64_t i = 0; i < kWidth; ++i)
    for (int64_t k = 0; k < depth; ++k)
      out[k * kWidth + i] = i < count ? one(rows + i * stride + k) : 0.0f;
}

template <class V, int kWidth, class T>
void pack(const T* rows, int64_t stride, int64_t count, int64_t depth, float* out) {
  if (count < kWidth) return pack_slowly<kWidth>(rows, stride, count, depth, out);
  constexpr int kLanes = V::kLanes;
  const int64_t whole = depth - depth % kLanes;
  for (int group = 0; group < kWidth; group += kLanes)
    for (int64_t k = 0; k < whole; k += kLanes) {
      typename V::Reg square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) square[i] = lanes<V>(rows + (group + i) * stride + k);
      V::transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) V::store(out + (k + i) * kWidth + group, square[i]);
    }
  for (int64_t k = whole; k < depth; ++k)
    for (int64_t i = 0; i < kWidth; ++i) out[k * kWidth + i] = one(rows + i * stride + k);
}

template <class V, int kWidth, class T>
void slice(const T* rows, int64_t stride, int64_t count, int64_t depth, float* out) {
  for (int64_t k = 0; k < depth; ++k, rows += stride)
    for (int64_t c = 0; c < count; c += kWidth) {
      float* to = out + c * depth + k * kWidth;
      __builtin_prefetch(rows + 2 * stride + c);
      __builtin_prefetch(rows + 2 * stride + c + kWidth / 2);
      if (count - c >= kWidth) {
#pragma GCC unroll 8
        for (int j = 0; j < kWidth; j += V::kLanes) V::store(to + j, lanes<V>(rows + c + j));
      } else {
        for (int64_t j = 0; j < kWidth; ++j) to[j] = c + j < count ? one(rows + c + j) : 0.0f;
      }
    }
}

template <class V>
void widen(const uint16_t* half, int64_t count, float* out) {
  int64_t k = 0;
  for (; k + V::kLanes <= count; k += V::kLanes) V::store(out + k, V::load_half(half + k));
  for (; k < count; ++k) out[k] = half_to_float(half[k]);
}

// Sixteen independent sums, which a compiler turns into vectors of float64.
template <class F>
inline double sum_squares(int64_t count, F value) {
  double sum[16] = {};
  int64_t k = 0;
  for (; k + 16 <= count; k += 16)
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) sum[c] += value(k + c) * value(k + c);
  for (; k < count; ++k) sum[0] += value(k) * value(k);
  double total = 0;
  for (int c = 0; c < 16; ++c) total += sum[c];
  return total;
}

double squares(const float* x, int64_t count) {
  return sum_squares(count, [=](int64_t k) { return double(x[k]); });
}

double chord(const float* x, double x_inverse, const float* y, double y_inverse, int64_t count) {
  return sum_squares(count, [=](int64_t k) { return x[k] * x_inverse - y[k] * y_inverse; });
}

// Four independent chains of kLanes sums: the processor starts a multiplication before the previous
// one is done, and the sums stay short. Each row is added up in the same order, however many rows
// there are.
template <class V, class T, int kRows>
inline void dot_rows(const float* x, const void* const* rows, int64_t count, float* out) {
  constexpr int kLanes = V::kLanes;
  typename V::Reg sum[kRows][4];
  const T* y[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    y[r] = static_cast<const T*>(rows[r]);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sum[r][c] = V::zero();
  }
  int64_t k = 0;
  for (; k + 4 * kLanes <= count; k += 4 * kLanes)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const typename V::Reg left = V::load(x + k + c * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        sum[r][c] = V::fma(left, lanes<V>(y[r] + k + c * kLanes), sum[r][c]);
    }
  for (; k + kLanes <= count; k += kLanes)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
      sum[r][0] = V::fma(V::load(x + k), lanes<V>(y[r] + k), sum[r][0]);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float rest = 0.0f;
    for (int64_t last = k; last < count; ++last) rest += x[last] * one(y[r] + last);
    out[r] = V::sum(V::add(V::add(sum[r][0], sum[r][1]), V::add(sum[r][2], sum[r][3]))) + rest;
  }
}

template <class V, class T>
float dot(const float* x, const T* y, int64_t count) {
  const void* row = y;
  float out;
  dot_rows<V, T, 1>(x, &row, count, &out);
  return out;
}

template <class V, class T>
void dots(const float* x, const void* const* rows, int64_t rows_count, int64_t count, float* out) {
  int64_t r = 0;
  for (; r + V::kDots <= rows_count; r += V::kDots)
    dot_rows<V, T, V::kDots>(x, rows + r, count, out + r);
  for (; r < rows_count; ++r) dot_rows<V, T, 1>(x, rows + r, count, out + r);
}

// Handles kRegs registers of each sum at a time, so that the sums stay in registers for all rows.
template <class V, class T, int kRegs>
inline void pull_some(const Pull& sum, float stay, const float* q, int64_t k, float* drift,
                      float* moved) {
  typename V::Reg from[kRegs], drifts[kRegs], moves[kRegs];
#pragma GCC unroll 4
  for (int c = 0; c < kRegs; ++c) {
    from[c] = V::load(q + k + c * V::kLanes);
    drifts[c] = V::zero();
    moves[c] = V::mul(V::broadcast(stay), from[c]);
  }
  for (int64_t i = 0; i < sum.rows; ++i) {
    const typename V::Reg weight = V::broadcast(sum.weights[i]);
#pragma GCC unroll 4
    for (int c = 0; c < kRegs; ++c) {
      const typename V::Reg to = lanes<V>(static_cast<const T*>(sum.row[i]) + k + c * V::kLanes);
      drifts[c] = V::fma(weight, V::sub(to, from[c]), drifts[c]);
      moves[c] = V::fma(weight, to, moves[c]);
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < kRegs; ++c) {
    V::store(drift + k + c * V::kLanes, drifts[c]);
    V::store(moved + k + c * V::kLanes, moves[c]);
  }
}

template <class V, class T>
void pull(const Pull& sum, float stay, const float* q, int64_t count, float* drift, float* moved) {
  int64_t k = 0;
  for (; k + 4 * V::kLanes <= count; k += 4 * V::kLanes)
    pull_some<V, T, 4>(sum, stay, q, k, drift, moved);
  for (; k + V::kLanes <= count; k += V::kLanes) pull_some<V, T, 1>(sum, stay, q, k, drift, moved);
  for (; k < count; ++k) {
    float far = 0.0f, near = stay * q[k];
    for (int64_t i = 0; i < sum.rows; ++i) {
      const float to = one(static_cast<const T*>(sum.row[i]) + k);
      far += sum.weights[i] * (to - q[k]);
      near += sum.weights[i] * to;
    }
    drift[k] = far;
    moved[k] = near;
  }
}

template <class V>
void scale(const float* values, float scale, const float* scales, int64_t count, float* out,
           float* maxima) {
  const typename V::Reg whole = V::broadcast(scale);
  for (int64_t block = 0; block < count; block += kBlock) {
    typename V::Reg most = V::broadcast(-__builtin_inff());
#pragma GCC unroll 4
    for (int64_t j = block; j < block + kBlock; j += V::kLanes) {
      const typename V::Reg scaled =
          V::mul(V::mul(V::load(values + j), whole), V::load(scales + j));
      V::store(out + j, scaled);
      most = V::max(most, scaled);
    }
    maxima[block / kBlock] = V::largest(most);
  }
}

template <class V>
int64_t argmax(const float* values, int64_t count) {
  float best = -__builtin_inff();
  int64_t k = 0;
  if (count >= V::kLanes) {
    typename V::Reg most = V::load(values);
    for (k = V::kLanes; k + V::kLanes <= count; k += V::kLanes)
      most = V::max(most, V::load(values + k));
    best = V::largest(most);
  }
  for (; k < count; ++k) best = values[k] > best ? values[k] : best;
  const typename V::Reg wanted = V::broadcast(best);
  for (k = 0; k + V::kLanes <= count; k += V::kLanes)
    if (const uint64_t bits = V::at_least(V::load(values + k), wanted))
      return k + __builtin_ctzll(bits);
  for (; k < count; ++k)
    if (values[k] == best) return k;
  return 0;  // all are NaN, and some index must be returned
}

template <class V>
uint64_t at_least(const float* values, float bound) {
  const typename V::Reg least = V::broadcast(bound);
  uint64_t bits = 0;
#pragma GCC unroll 16
  for (int j = 0; j < kBlock; j += V::kLanes) bits |= V::at_least(V::load(values + j), least) << j;
  return bits;
}

template <class V, int kRows, int kRegs>
constexpr Kernels make_kernels(const char* name) {
  constexpr int kCols = kRegs * V::kLanes;
  static_assert(kBlock % kCols == 0, "a block holds whole tiles");
  return Kernels{name,
                 kRows,
                 kCols,
                 multiply<V, kRows, kRegs>,
                 multiply_sum<V, kRows, kRegs>,
                 pack_rows<V, kRows>,
                 pack<V, kCols, float>,
                 pack<V, kCols, uint16_t>,
                 slice<V, kCols, float>,
                 slice<V, kCols, uint16_t>,
                 widen<V>,
                 squares,
                 chord,
                 dot<V, float>,
                 dot<V, uint16_t>,
                 dots<V, float>,
                 dots<V, uint16_t>,
                 pull<V, float>,
                 pull<V, uint16_t>,
                 weigh,
                 solve_dense,
                 scale<V>,
                 argmax<V>,
                 at_least<V>,
                 nullptr};
}

}  // namespace
}  // namespace anoco
