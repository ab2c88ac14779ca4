// The calls of cuBLAS: a GEMM of float32 or raw float16 operands, summed in float32.
#include <cstring>

#include "world.hpp"

using namespace simcuda;

namespace {

enum : int { kBlasInvalid = 7, kBlasInternal = 14 };

World& world() { return World::get(); }

float widened(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16, size = half & 0x7fffu;
  uint32_t bits;
  if (size >= 0x7c00) {
    bits = 0x7f800000 | (size & 0x3ff) << 13;
  } else if (size >= 0x400) {
    bits = (size << 13) + 0x38000000;
  } else {
    const float value = float(size) * 5.9604644775390625e-8f;  // 2^-24
    std::memcpy(&bits, &value, sizeof bits);
  }
  bits |= sign;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::vector<float> row_of(uintptr_t matrix, int64_t row, int64_t stride, int64_t count, int type) {
  std::vector<float> found(static_cast<size_t>(count));
  const auto* floats = reinterpret_cast<const float*>(matrix) + row * stride;
  const auto* halves = reinterpret_cast<const uint16_t*>(matrix) + row * stride;
  for (int64_t k = 0; k < count; ++k)
    found[size_t(k)] = type == kFloat32 ? floats[k] : widened(halves[k]);
  return found;
}

// Adds in a few parallel sums, as fast implementations do.
float dot(const std::vector<float>& x, const std::vector<float>& y) {
  constexpr size_t kLanes = 8;
  float sums[kLanes] = {};
  size_t k = 0;
  for (; k + kLanes <= x.size(); k += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += x[k + lane] * y[k + lane];
  for (; k < x.size(); ++k) sums[k % kLanes] += x[k] * y[k];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

struct Gemm {
  int64_t m, n, k;
  uintptr_t a, b, c;
  int64_t lda, ldb, ldc;
  int type;

  // C = A^T B of matrices stored by columns: each of m rows with each of n.
  void run() const {
    std::vector<std::vector<float>> left;
    for (int64_t i = 0; i < m; ++i) left.push_back(row_of(a, i, lda, k, type));
    for (int64_t j = 0; j < n; ++j) {
      const std::vector<float> right = row_of(b, j, ldb, k, type);
      float* column = reinterpret_cast<float*>(c) + j * ldc;
      for (int64_t i = 0; i < m; ++i) column[i] = dot(left[size_t(i)], right);
    }
  }
};

uintptr_t number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

extern "C" {

int cublasCreate_v2(CublasHandle* handle) {
  const Entry entry("cublasCreate_v2");
  if (entry.code() != 0) return entry.code();
  if (entry.synchronize_device() != kSuccess) return kBlasInternal;
  *handle = reinterpret_cast<CublasHandle>(world().make<Blas>(Kind::blas, entry.context()));
  return 0;
}

int cublasDestroy_v2(CublasHandle handle) {
  const Entry entry("cublasDestroy_v2");
  if (entry.lost()) return entry.code();
  if (entry.synchronize_device() != kSuccess) return kBlasInternal;
  world().destroy(world().check<Blas>(entry.call(), handle, Kind::blas));
  return entry.code();
}

int cublasGetProperty(int part, int* value) {
  const Entry entry("cublasGetProperty", false);
  if (entry.code() != 0) return entry.code();
  const int parts[] = {world().driver_version / 1000, 6, 3};
  if (part < 0 || part > 2) return kBlasInvalid;
  *value = parts[part];
  return 0;
}

int cublasSetStream_v2(CublasHandle handle, CUstream stream) {
  const Entry entry("cublasSetStream_v2");
  if (entry.code() != 0) return entry.code();
  auto* blas = world().check<Blas>(entry.call(), handle, Kind::blas);
  blas->stream = world().stream(entry.call(), stream);
  blas->workspace_size = 0;  // as cuBLAS does
  return 0;
}

int cublasSetWorkspace_v2(CublasHandle handle, void* workspace, size_t bytes) {
  const Entry entry("cublasSetWorkspace_v2");
  if (entry.code() != 0) return entry.code();
  auto* blas = world().check<Blas>(entry.call(), handle, Kind::blas);
  world().use(entry.call(), number(workspace), bytes, false, true);
  if (number(workspace) % 256 != 0) return kBlasInvalid;
  blas->workspace = number(workspace);
  blas->workspace_size = bytes;
  return 0;
}

int cublasSetMathMode(CublasHandle handle, int mode) {
  const Entry entry("cublasSetMathMode");
  if (entry.code() != 0) return entry.code();
  world().check<Blas>(entry.call(), handle, Kind::blas)->math = mode;
  return 0;
}

int cublasGemmEx(CublasHandle handle, int transpose_a, int transpose_b, int m, int n, int k,
                 const void* alpha, const void* a, int type_a, int lda, const void* b, int type_b,
                 int ldb, const void* beta, void* c, int type_c, int ldc, int compute, int) {
  const Entry entry("cublasGemmEx");
  if (entry.code() != 0) return entry.code();
  const auto* blas = world().check<Blas>(entry.call(), handle, Kind::blas);
  if (blas->stream == nullptr) misuse("cublasGemmEx: on the default stream");
  if (blas->workspace_size < 16384)
    misuse("cublasGemmEx: without a workspace, which capturing needs");
  if (m < 1 || n < 1 || k < 1 || lda < k || ldb < k || ldc < m) return kBlasInvalid;
  if (transpose_a != kBlasTranspose || transpose_b != kBlasKeep || type_a != type_b ||
      type_c != kFloat32 || *static_cast<const float*>(alpha) != 1 ||
      *static_cast<const float*>(beta) != 0)
    misuse("cublasGemmEx: simulated for C = A^T B with float32 results alone");
  // Refuses what changes which references are neighbors: TF32, and sums in half precision.
  if (type_a == kFloat32 && (compute != kCompute32Pedantic || blas->math != kMathPedantic))
    misuse("cublasGemmEx: float32 operands without pedantic arithmetic");
  if (type_a == kFloat16 && (compute != kCompute32 || blas->math != kMathFullSums))
    misuse("cublasGemmEx: float16 operands with sums that may be rounded");
  if (type_a != kFloat32 && type_a != kFloat16) misuse("cublasGemmEx: operands of another type");
  const std::string kernel = std::to_string(type_a) + " " + std::to_string(m) + " x " +
                             std::to_string(n) + " x " + std::to_string(k);
  if (world().loads_kernel(entry.context(), kernel) && entry.synchronize_device() != kSuccess)
    return kBlasInternal;
  const size_t size = type_a == kFloat32 ? 4 : 2;
  const auto bytes = [](int64_t columns, int64_t stride, int64_t rows, size_t each) {
    return size_t((columns - 1) * stride + rows) * each;
  };
  const Gemm gemm{m, n, k, number(a), number(b), number(c), lda, ldb, ldc, type_a};
  const CUresult code = world().enqueue(
      blas->stream,
      {entry.call(),
       {world().use(entry.call(), gemm.a, bytes(m, lda, k, size), false, false),
        world().use(entry.call(), gemm.b, bytes(n, ldb, k, size), false, false),
        world().use(entry.call(), gemm.c, bytes(n, ldc, m, 4), false, true),
        world().use(entry.call(), blas->workspace, blas->workspace_size, false, true)},
       [=] { gemm.run(); },
       {},
       {}});
  return code == kSuccess ? 0 : kBlasInternal;
}

}  // extern "C"
