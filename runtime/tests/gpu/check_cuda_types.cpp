// Compares src/gpu/cuda_types.hpp with the headers of CUDA: it compiles if both agree.
#include <cuda.h>

#include <type_traits>

#include "gpu/cuda_types.hpp"
#ifdef ANOCO_HAS_CUBLAS
#include <cublas_api.h>
#endif

namespace {

// Handles are pointers to other types and enumerations are numbers; only how they are passed
// matters.
template <class Ours, class Theirs>
constexpr bool alike =
    sizeof(Ours) == sizeof(Theirs) &&
    std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>&& std::is_pointer_v<Ours> ==
        std::is_pointer_v<Theirs>;

template <class... Ours>
struct Arguments {
  template <class Result, class... Theirs>
  static constexpr bool fit(Result (*)(Theirs...)) {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs))
      return sizeof(Result) == sizeof(int) && (alike<Ours, Theirs> && ...);
    else
      return false;
  }
};

using Theirs2D = CUDA_MEMCPY2D;
static_assert(sizeof(anoco::gpu::Memcpy2D) == sizeof(Theirs2D));
static_assert(offsetof(anoco::gpu::Memcpy2D, srcDevice) == offsetof(Theirs2D, srcDevice));
static_assert(offsetof(anoco::gpu::Memcpy2D, dstMemoryType) == offsetof(Theirs2D, dstMemoryType));
static_assert(offsetof(anoco::gpu::Memcpy2D, dstPitch) == offsetof(Theirs2D, dstPitch));
static_assert(offsetof(anoco::gpu::Memcpy2D, Height) == offsetof(Theirs2D, Height));

#define ANOCO_SAME(ours, theirs) static_assert(int(ours) == int(theirs), #ours)
ANOCO_SAME(anoco::gpu::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
ANOCO_SAME(anoco::gpu::kNoDevice, CUDA_ERROR_NO_DEVICE);
ANOCO_SAME(anoco::gpu::kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
ANOCO_SAME(anoco::gpu::kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
ANOCO_SAME(anoco::gpu::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
ANOCO_SAME(anoco::gpu::kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
ANOCO_SAME(anoco::gpu::kPrimaryContextActive, CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
ANOCO_SAME(anoco::gpu::kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
ANOCO_SAME(anoco::gpu::kAssert, CUDA_ERROR_ASSERT);
ANOCO_SAME(anoco::gpu::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
ANOCO_SAME(anoco::gpu::kCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
ANOCO_SAME(anoco::gpu::kUnknown, CUDA_ERROR_UNKNOWN);
ANOCO_SAME(anoco::gpu::kCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
ANOCO_SAME(anoco::gpu::kCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
ANOCO_SAME(anoco::gpu::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
ANOCO_SAME(anoco::gpu::kEventNoTiming, CU_EVENT_DISABLE_TIMING);
ANOCO_SAME(anoco::gpu::kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
ANOCO_SAME(anoco::gpu::kCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
ANOCO_SAME(anoco::gpu::kScheduling, CU_CTX_SCHED_MASK);
ANOCO_SAME(anoco::gpu::kScheduleBlockingSync, CU_CTX_SCHED_BLOCKING_SYNC);
ANOCO_SAME(anoco::gpu::kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
ANOCO_SAME(anoco::gpu::kPointerDevicePointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
ANOCO_SAME(anoco::gpu::kPointerIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
ANOCO_SAME(anoco::gpu::kPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
ANOCO_SAME(anoco::gpu::kMemoryDevice, CU_MEMORYTYPE_DEVICE);

#ifdef ANOCO_HAS_CUBLAS
ANOCO_SAME(anoco::gpu::kBlasAllocFailed, CUBLAS_STATUS_ALLOC_FAILED);
ANOCO_SAME(anoco::gpu::kBlasTranspose, CUBLAS_OP_T);
ANOCO_SAME(anoco::gpu::kBlasKeep, CUBLAS_OP_N);
ANOCO_SAME(anoco::gpu::kFloat32, CUDA_R_32F);
ANOCO_SAME(anoco::gpu::kFloat16, CUDA_R_16F);
ANOCO_SAME(anoco::gpu::kCompute32, CUBLAS_COMPUTE_32F);
ANOCO_SAME(anoco::gpu::kCompute32Pedantic, CUBLAS_COMPUTE_32F_PEDANTIC);
ANOCO_SAME(anoco::gpu::kGemmDefault, CUBLAS_GEMM_DEFAULT);
ANOCO_SAME(anoco::gpu::kMathPedantic, CUBLAS_PEDANTIC_MATH);
ANOCO_SAME(anoco::gpu::kMathFullSums, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
#endif

}  // namespace

// Inside this namespace our names hide those of the headers.
namespace anoco::gpu {

#define ANOCO_CHECK(name, ...) \
  static_assert(Arguments<__VA_ARGS__>::fit(decltype (&::name)(nullptr)), #name);
ANOCO_DRIVER_CALLS(ANOCO_CHECK)
#ifdef ANOCO_HAS_CUBLAS
// For C++ the header has a second cublasGemmEx; this is the one that the library exports.
namespace exported {
constexpr cublasStatus_t (*cublasGemmEx)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                         int, int, const void*, const void*, cudaDataType, int,
                                         const void*, cudaDataType, int, const void*, void*,
                                         cudaDataType, int, cublasComputeType_t,
                                         cublasGemmAlgo_t) = &::cublasGemmEx;
constexpr auto cublasCreate_v2 = &::cublasCreate_v2;
constexpr auto cublasDestroy_v2 = &::cublasDestroy_v2;
constexpr auto cublasGetProperty = &::cublasGetProperty;
constexpr auto cublasSetStream_v2 = &::cublasSetStream_v2;
constexpr auto cublasSetWorkspace_v2 = &::cublasSetWorkspace_v2;
constexpr auto cublasSetMathMode = &::cublasSetMathMode;
}  // namespace exported
#define ANOCO_CHECK_BLAS(name, ...) \
  static_assert(Arguments<__VA_ARGS__>::fit(decltype(+exported::name)(nullptr)), #name);
ANOCO_CUBLAS_CALLS(ANOCO_CHECK_BLAS)
#endif

}  // namespace anoco::gpu
