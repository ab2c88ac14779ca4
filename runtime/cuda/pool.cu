// The image score: the mean of the largest energies, which one block finds one after the other.
#include "gpu_kernels.h"
#include "reduce.cuh"

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_BLOCK)
    anoco_pool(const float* energy, const unsigned char* scored, int patches, int top, float* score,
               int* peak) {
  __shared__ Ranked scratch[kWarps];
  bool broken = false;
  for (int p = threadIdx.x; p < patches; p += ANOCO_GPU_BLOCK)
    broken |= scored[p] != 0 && energy[p] != energy[p];
  broken = __syncthreads_count(broken) != 0;

  Ranked last = ~(Ranked)0;
  double sum = 0;
  int found = 0, first = 0;
  while (!broken && found < top) {
    Ranked mine = 0;
    for (int p = threadIdx.x; p < patches; p += ANOCO_GPU_BLOCK) {
      if (scored[p] == 0) continue;
      const Ranked r = ranked(energy[p], p);
      if (r < last && r > mine) mine = r;
    }
    last = reduce(mine, Largest(), scratch);
    if (last == 0) break;  // there are fewer patches
    if (found++ == 0) first = place_of(last);
    sum += value_of(last);
  }
  if (threadIdx.x != 0) return;
  *score = found == 0 ? not_a_number() : (float)(sum / found);
  if (peak != nullptr) *peak = first;
}
