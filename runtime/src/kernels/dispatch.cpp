#include <cstdlib>
#include <cstring>

#include "kernels/kernels.hpp"

#if defined(ANOCO_X86)
#include <cpuid.h>
#endif

namespace anoco {

#if defined(ANOCO_X86)
namespace {

// Clang 14's __builtin_cpu_supports does not know this name.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

const Kernels* kernels_by_rank(int rank) {
#if defined(ANOCO_X86)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
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
