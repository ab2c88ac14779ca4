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

// Clang 14 and GCC 9 do not know this name: leaf 7, subleaf 1, EAX bit 5.
bool has_avx512bf16() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1u) != 0;
}

// The kernels of AVX-512, so that results have the same bits, and products of rounded rows.
const Kernels* bf16_kernels() {
  static const Kernels table = [] {
    Kernels with_rounded = kAvx512Kernels;
    with_rounded.name = "avx512bf16";
    with_rounded.rounded = &kBf16Kernels;
    return with_rounded;
  }();
  return &table;
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
  const Kernels* found[kTables] = {avx512 && has_avx512bf16() ? bf16_kernels() : nullptr,
                                   avx512 ? &kAvx512Kernels : nullptr,
                                   avx2 ? &kAvx2Kernels : nullptr, &kScalarKernels};
#elif defined(ANOCO_ARM)
  const Kernels* found[kTables] = {&kNeonKernels, nullptr, nullptr,
                                   &kScalarKernels};  // every AArch64 has NEON
#else
  const Kernels* found[kTables] = {nullptr, nullptr, nullptr, &kScalarKernels};
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
