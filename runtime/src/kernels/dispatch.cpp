#include <cstdlib>
#include <cstring>

#include "kernels/kernels.hpp"

namespace anoco {

const Kernels* kernels_by_rank(int rank) {
#if defined(ANOCO_X86)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const Kernels* found[kTables] = {avx512 ? &kAvx512Kernels : nullptr,
                                   avx2 ? &kAvx2Kernels : nullptr, &kScalarKernels};
#elif defined(ANOCO_ARM)
  const Kernels* found[kTables] = {&kNeonKernels, nullptr,
                                   &kScalarKernels};  // every AArch64 has NEON
#else
  const Kernels* found[kTables] = {nullptr, nullptr, &kScalarKernels};
#endif
  return found[rank];
}

namespace {

const Kernels& choose() {
  const char* wanted = std::getenv("ANOCO_EDGE_KERNELS");
  const Kernels* best = nullptr;
  for (int rank = 0; rank < kTables; ++rank) {
    const Kernels* table = kernels_by_rank(rank);
    if (table == nullptr) continue;
    if (best == nullptr) best = table;
    if (wanted != nullptr && std::strcmp(wanted, table->name) == 0) return *table;
  }
  return *best;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace anoco
