// Smooths the grid of energies with the 3x3 Gaussian of src/picture/pooling.cpp, one thread per
// patch. The terms are added in the same order.
#include "gpu_kernels.h"

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_smooth(const float* energy, const unsigned char* scored, int rows, int cols, double side,
                 float* out) {
  const long long thread = (long long)blockIdx.x * ANOCO_GPU_BLOCK + threadIdx.x;
  if (thread >= (long long)rows * cols) return;
  const int p = (int)thread;
  if (scored[p] == 0) {
    out[p] = 0;
    return;
  }
  const int row = p / cols, col = p % cols;
  double total = 0, weight = 0;
  for (int r = row - 1; r <= row + 1; ++r)
    for (int c = col - 1; c <= col + 1; ++c) {
      if (r < 0 || r >= rows || c < 0 || c >= cols || scored[r * cols + c] == 0) continue;
      const double share = (r == row ? 1.0 : side) * (c == col ? 1.0 : side);
      total += share * energy[r * cols + c];
      weight += share;
    }
  out[p] = (float)(total / weight);
}
