// The parts of CUDA's driver interface and of cuBLAS that are used, declared here so that building
// needs no toolkit. tests/gpu/check_cuda_types.cpp compares them with the real headers where these
// are found.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anoco::gpu {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUcontextOpaque*;
using CUmodule = struct CUmoduleOpaque*;
using CUfunction = struct CUfunctionOpaque*;
using CUstream = struct CUstreamOpaque*;
using CUevent = struct CUeventOpaque*;
using CUgraph = struct CUgraphOpaque*;
using CUgraphExec = struct CUgraphExecOpaque*;

// The error codes that are treated specially; the driver names all others.
enum : CUresult {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kEccUncorrectable = 214,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kPrimaryContextActive = 708,  // of older drivers
  kContextIsDestroyed = 709,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kUnknown = 999,
};

enum : int { kCapabilityMajor = 75, kCapabilityMinor = 76 };  // device attributes
enum : unsigned { kStreamNonBlocking = 1, kEventDefault = 0, kEventNoTiming = 2 };
enum : int { kCaptureThreadLocal = 1 };
enum : unsigned { kScheduling = 7, kScheduleBlockingSync = 4 };  // flags of a context
enum : int {                                                     // pointer attributes
  kPointerMemoryType = 2,
  kPointerDevicePointer = 3,
  kPointerIsManaged = 8,
  kPointerDeviceOrdinal = 9,
};
enum : unsigned { kMemoryHost = 1, kMemoryDevice = 2, kMemoryUnified = 4 };

struct Memcpy2D {  // CUDA_MEMCPY2D
  size_t srcXInBytes, srcY;
  unsigned srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  void* srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  unsigned dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  void* dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
};

using CublasHandle = struct CublasOpaque*;
enum : int { kBlasNotInitialized = 1, kBlasAllocFailed = 3 };  // cublasStatus_t
enum : int { kBlasKeep = 0, kBlasTranspose = 1 };              // cublasOperation_t
enum : int { kFloat32 = 0, kFloat16 = 2 };                     // cudaDataType
enum : int { kCompute32 = 68, kCompute32Pedantic = 69 };       // cublasComputeType_t
enum : int { kGemmDefault = -1 };                              // cublasGemmAlgo_t
// cublasMath_t: sums stay in float32, whether one kernel computes them or several share the work.
enum : int { kMathPedantic = 2, kMathFullSums = 16 };

}  // namespace anoco::gpu

// CALL(name, types of the arguments) for every driver function that is called. Functions are called
// by their _v2 names where these exist, because the others are older than CUDA 4;
// cuEventElapsedTime_v2 came with 12.8, which JetPack 6 does not have.
#define ANOCO_DRIVER_CALLS(CALL)                                                               \
  CALL(cuInit, unsigned)                                                                       \
  CALL(cuDriverGetVersion, int*)                                                               \
  CALL(cuGetErrorName, CUresult, const char**)                                                 \
  CALL(cuDeviceGetCount, int*)                                                                 \
  CALL(cuDeviceGet, CUdevice*, int)                                                            \
  CALL(cuDeviceGetName, char*, int, CUdevice)                                                  \
  CALL(cuDeviceGetAttribute, int*, int, CUdevice)                                              \
  CALL(cuDeviceTotalMem_v2, size_t*, CUdevice)                                                 \
  CALL(cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)                                         \
  CALL(cuDevicePrimaryCtxRelease_v2, CUdevice)                                                 \
  CALL(cuDevicePrimaryCtxGetState, CUdevice, unsigned*, int*)                                  \
  CALL(cuDevicePrimaryCtxSetFlags_v2, CUdevice, unsigned)                                      \
  CALL(cuCtxPushCurrent_v2, CUcontext)                                                         \
  CALL(cuCtxPopCurrent_v2, CUcontext*)                                                         \
  CALL(cuModuleLoadData, CUmodule*, const void*)                                               \
  CALL(cuModuleGetFunction, CUfunction*, CUmodule, const char*)                                \
  CALL(cuModuleUnload, CUmodule)                                                               \
  CALL(cuMemAlloc_v2, CUdeviceptr*, size_t)                                                    \
  CALL(cuMemFree_v2, CUdeviceptr)                                                              \
  CALL(cuMemHostAlloc, void**, size_t, unsigned)                                               \
  CALL(cuMemFreeHost, void*)                                                                   \
  CALL(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void*, size_t, CUstream)                       \
  CALL(cuMemcpyDtoHAsync_v2, void*, CUdeviceptr, size_t, CUstream)                             \
  CALL(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, size_t, CUstream)                       \
  CALL(cuMemcpy2DAsync_v2, const Memcpy2D*, CUstream)                                          \
  CALL(cuMemsetD32Async, CUdeviceptr, unsigned, size_t, CUstream)                              \
  CALL(cuPointerGetAttribute, void*, int, CUdeviceptr)                                         \
  CALL(cuStreamCreate, CUstream*, unsigned)                                                    \
  CALL(cuStreamDestroy_v2, CUstream)                                                           \
  CALL(cuStreamSynchronize, CUstream)                                                          \
  CALL(cuStreamWaitEvent, CUstream, CUevent, unsigned)                                         \
  CALL(cuStreamBeginCapture_v2, CUstream, int)                                                 \
  CALL(cuStreamEndCapture, CUstream, CUgraph*)                                                 \
  CALL(cuEventCreate, CUevent*, unsigned)                                                      \
  CALL(cuEventDestroy_v2, CUevent)                                                             \
  CALL(cuEventRecord, CUevent, CUstream)                                                       \
  CALL(cuEventElapsedTime, float*, CUevent, CUevent)                                           \
  CALL(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
       unsigned, CUstream, void**, void**)                                                     \
  CALL(cuGraphInstantiateWithFlags, CUgraphExec*, CUgraph, unsigned long long)                 \
  CALL(cuGraphLaunch, CUgraphExec, CUstream)                                                   \
  CALL(cuGraphExecDestroy, CUgraphExec)                                                        \
  CALL(cuGraphDestroy, CUgraph)

#define ANOCO_CUBLAS_CALLS(CALL)                                                                \
  CALL(cublasCreate_v2, CublasHandle*)                                                          \
  CALL(cublasDestroy_v2, CublasHandle)                                                          \
  CALL(cublasGetProperty, int, int*)                                                            \
  CALL(cublasSetStream_v2, CublasHandle, CUstream)                                              \
  CALL(cublasSetWorkspace_v2, CublasHandle, void*, size_t)                                      \
  CALL(cublasSetMathMode, CublasHandle, int)                                                    \
  CALL(cublasGemmEx, CublasHandle, int, int, int, int, int, const void*, const void*, int, int, \
       const void*, int, int, const void*, void*, int, int, int, int)
