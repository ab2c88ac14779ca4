// Portable code that works on groups of numbers, which a compiler may turn into vector
// instructions.
#include "kernels/generic.hpp"

namespace anoco {
namespace {

struct V {
  static constexpr int kLanes = 4;
  static constexpr int kDots = 1;
  struct Reg {
    float lane[kLanes];
  };
  template <class F>
  static Reg each(F f) {
    Reg out;
    for (int i = 0; i < kLanes; ++i) out.lane[i] = f(i);
    return out;
  }
  static Reg load(const float* p) {
    return each([=](int i) { return p[i]; });
  }
  static Reg load_half(const uint16_t* p) {
    return each([=](int i) { return half_to_float(p[i]); });
  }
  static void store(float* p, Reg v) {
    for (int i = 0; i < kLanes; ++i) p[i] = v.lane[i];
  }
  static Reg zero() { return broadcast(0.0f); }
  static Reg broadcast(float v) {
    return each([=](int) { return v; });
  }
  static Reg fma(Reg a, Reg b, Reg c) {
    return each([=](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
  }
  static Reg add(Reg a, Reg b) {
    return each([=](int i) { return a.lane[i] + b.lane[i]; });
  }
  static void add_to(double* p, Reg v) {
    for (int i = 0; i < kLanes; ++i) p[i] += double(v.lane[i]);
  }
  static Reg sub(Reg a, Reg b) {
    return each([=](int i) { return a.lane[i] - b.lane[i]; });
  }
  static Reg mul(Reg a, Reg b) {
    return each([=](int i) { return a.lane[i] * b.lane[i]; });
  }
  static Reg max(Reg a, Reg b) {
    return each([=](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static uint64_t at_least(Reg a, Reg b) {
    uint64_t bits = 0;
    for (int i = 0; i < kLanes; ++i) bits |= uint64_t(a.lane[i] >= b.lane[i]) << i;
    return bits;
  }
  static float sum(Reg v) { return (v.lane[0] + v.lane[2]) + (v.lane[1] + v.lane[3]); }
  static float largest(Reg v) {
    float most = v.lane[0];
    for (int i = 1; i < kLanes; ++i) most = v.lane[i] > most ? v.lane[i] : most;
    return most;
  }
  static void transpose(Reg (&r)[kLanes]) {
    for (int i = 0; i < kLanes; ++i)
      for (int j = 0; j < i; ++j) {
        const float other = r[i].lane[j];
        r[i].lane[j] = r[j].lane[i];
        r[j].lane[i] = other;
      }
  }
};

}  // namespace

const Kernels kScalarKernels = make_kernels<V, 4, 2>("scalar");

}  // namespace anoco
