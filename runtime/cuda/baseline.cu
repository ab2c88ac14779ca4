// Takes off what good parts usually have in each place, one thread a patch.
#include "gpu_kernels.h"

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_take_off(float* energy, const unsigned char* counted, const float* usual, int patches) {
  const long long p = (long long)blockIdx.x * ANOCO_GPU_BLOCK + threadIdx.x;
  if (p >= patches) return;
  const float kept = usual == nullptr ? energy[p] : energy[p] - usual[p];
  const bool below = usual != nullptr && kept < 0;  // NaN stays NaN
  energy[p] = counted[p] == 0 || below ? 0.0f : kept;
}
