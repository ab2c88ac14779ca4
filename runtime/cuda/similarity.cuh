// The similarity of a pair, from its product and its norms. Every kernel that decides by it calls
// this function, whose operations are rounded one by one whatever the compiler's flags.
#pragma once

static __device__ __forceinline__ float similarity(float product, float norm, float other_norm) {
  return __fdiv_rn(product, __fmul_rn(norm, other_norm));
}
