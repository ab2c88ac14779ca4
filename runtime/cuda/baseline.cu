// Subtracts the energy that good parts have at each patch, one thread per patch.
#include "gpu_kernels.h"

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_subtract_baseline(float* energy, const unsigned char* scored, const float* baseline,
                            int patches) {
  const long long p = (long long)blockIdx.x * ANOCO_GPU_BLOCK + threadIdx.x;
  if (p >= patches) return;
  const float kept = baseline == nullptr ? energy[p] : energy[p] - baseline[p];
  const bool below = baseline != nullptr && kept < 0;  // NaN stays NaN
  energy[p] = scored[p] == 0 || below ? 0.0f : kept;
}
