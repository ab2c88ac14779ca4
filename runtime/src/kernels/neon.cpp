// NEON of AArch64: four numbers at a time.
#include <arm_neon.h>

#include "kernels/generic.hpp"

namespace anoco {
namespace {

struct V {
  static constexpr int kLanes = 4;
  static constexpr int kDots = 4;
  using Reg = float32x4_t;
  static Reg load(const float* p) { return vld1q_f32(p); }
  static Reg load_half(const uint16_t* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
  }
  static void store(float* p, Reg v) { vst1q_f32(p, v); }
  static Reg zero() { return vdupq_n_f32(0.0f); }
  static Reg broadcast(float v) { return vdupq_n_f32(v); }
  static Reg fma(Reg a, Reg b, Reg c) { return vfmaq_f32(c, a, b); }
  static Reg add(Reg a, Reg b) { return vaddq_f32(a, b); }
  static void add_to(double* p, Reg v) {
    vst1q_f64(p, vaddq_f64(vld1q_f64(p), vcvt_f64_f32(vget_low_f32(v))));
    vst1q_f64(p + 2, vaddq_f64(vld1q_f64(p + 2), vcvt_high_f64_f32(v)));
  }
  static Reg sub(Reg a, Reg b) { return vsubq_f32(a, b); }
  static Reg mul(Reg a, Reg b) { return vmulq_f32(a, b); }
  static Reg max(Reg a, Reg b) { return vmaxq_f32(a, b); }
  static uint64_t at_least(Reg a, Reg b) {
    const uint32_t bit[4] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(vcgeq_f32(a, b), vld1q_u32(bit)));
  }
  static float sum(Reg v) { return vaddvq_f32(v); }
  static float largest(Reg v) { return vmaxvq_f32(v); }
  static void transpose(Reg (&r)[4]) {
    const float32x4x2_t low = vtrnq_f32(r[0], r[1]), high = vtrnq_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(low.val[0]), vget_low_f32(high.val[0]));
    r[1] = vcombine_f32(vget_low_f32(low.val[1]), vget_low_f32(high.val[1]));
    r[2] = vcombine_f32(vget_high_f32(low.val[0]), vget_high_f32(high.val[0]));
    r[3] = vcombine_f32(vget_high_f32(low.val[1]), vget_high_f32(high.val[1]));
  }
};

}  // namespace

const Kernels kNeonKernels = make_kernels<V, 6, 4>("neon");

}  // namespace anoco
