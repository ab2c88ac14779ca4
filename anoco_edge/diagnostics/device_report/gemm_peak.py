"""Measures how fast the GPU multiplies FP16 matrices, as the scale for everything else.

The driver and cuBLAS are called by ctypes, with the arithmetic of our scorer: FP16 operands, sums
and results in float32. Published peaks are for other clocks than a device has.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ctypes import byref, c_float, c_int, c_uint64, c_void_p

from pydantic import BaseModel, ConfigDict

from anoco_edge.errors import EngineError, EnvironmentMissingError

SIZE = 4096
_REPEATS = 20
_WORKSPACE = 32 << 20
_CUDA_13 = 13000
_FOLDERS = ("", "/usr/local/cuda/lib64/")
# cuda_types.hpp of the runtime names these numbers of cuda.h and cublas_api.h.
_TRANSPOSE, _KEEP, _FLOAT32, _FLOAT16, _COMPUTE32, _DEFAULT, _FULL_SUMS = 1, 0, 0, 2, 68, -1, 16


class GemmPeak(BaseModel):
    """The best of several products of square matrices, in 10^12 operations a second."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: int
    tflops: float


def measure_gemm_peak(size: int = SIZE, repeats: int = _REPEATS) -> GemmPeak:
    """Multiply FP16 matrices of `size` x `size` several times; the fastest product counts."""
    with ExitStack() as stack:
        driver = _load(os.environ.get("ANOCO_CUDA_DRIVER") or "libcuda.so.1")
        _call(driver, "cuInit", 0)
        stream = stack.enter_context(_stream_in_context(driver))
        operand, result, workspace = (
            stack.enter_context(_zeros(driver, stream, count))
            for count in (size * size // 2, size * size, _WORKSPACE // 4)
        )
        blas = _load_blas(driver)
        handle = stack.enter_context(_handle(blas, stream, workspace))
        best = min(
            _time_product(driver, blas, handle, stream, operand, result, size)
            for _ in range(repeats + 1)  # the first one loads kernels and does not win
        )
    return GemmPeak(size=size, tflops=2 * size**3 / best / 1e12)


def _time_product(
    driver: ctypes.CDLL,
    blas: ctypes.CDLL,
    handle: c_void_p,
    stream: c_void_p,
    operand: c_uint64,
    result: c_uint64,
    n: int,
) -> float:
    one, zero = c_float(1), c_float(0)
    a = c_void_p(operand.value)
    c = c_void_p(result.value)
    start = time.perf_counter()
    left, right = (a, _FLOAT16, n), (a, _FLOAT16, n)
    sizes = (_TRANSPOSE, _KEEP, n, n, n)
    _call(
        blas,
        "cublasGemmEx",
        *(handle, *sizes, byref(one), *left, *right, byref(zero), c, _FLOAT32, n),
        *(_COMPUTE32, _DEFAULT),
    )
    _call(driver, "cuStreamSynchronize", stream)
    return time.perf_counter() - start


@contextmanager
def _stream_in_context(driver: ctypes.CDLL) -> Iterator[c_void_p]:
    device, context, stream = c_int(), c_void_p(), c_void_p()
    _call(driver, "cuDeviceGet", byref(device), 0)
    _call(driver, "cuDevicePrimaryCtxRetain", byref(context), device)
    _call(driver, "cuCtxPushCurrent_v2", context)
    try:
        _call(driver, "cuStreamCreate", byref(stream), 1)  # does not wait for the default stream
        yield stream
        _call(driver, "cuStreamDestroy_v2", stream)
    finally:
        driver.cuCtxPopCurrent_v2(byref(c_void_p()))
        driver.cuDevicePrimaryCtxRelease_v2(device)


@contextmanager
def _zeros(driver: ctypes.CDLL, stream: c_void_p, count: int) -> Iterator[c_uint64]:
    pointer = c_uint64()
    _call(driver, "cuMemAlloc_v2", byref(pointer), ctypes.c_size_t(count * 4))
    try:
        _call(driver, "cuMemsetD32Async", pointer, 0, ctypes.c_size_t(count), stream)
        yield pointer
    finally:
        driver.cuStreamSynchronize(stream)
        driver.cuMemFree_v2(pointer)


@contextmanager
def _handle(blas: ctypes.CDLL, stream: c_void_p, workspace: c_uint64) -> Iterator[c_void_p]:
    handle = c_void_p()
    _call(blas, "cublasCreate_v2", byref(handle))
    try:
        _call(blas, "cublasSetStream_v2", handle, stream)
        space = ctypes.c_size_t(_WORKSPACE)
        _call(blas, "cublasSetWorkspace_v2", handle, c_void_p(workspace.value), space)
        _call(blas, "cublasSetMathMode", handle, _FULL_SUMS)
        yield handle
    finally:
        blas.cublasDestroy_v2(handle)


def _load_blas(driver: ctypes.CDLL) -> ctypes.CDLL:
    """Load the cuBLAS that fits the driver; a simulated driver brings its own."""
    if hasattr(driver, "cublasGemmEx"):
        return driver
    version = c_int()
    _call(driver, "cuDriverGetVersion", byref(version))
    names = ["libcublas.so.13"] if version.value >= _CUDA_13 else []
    for name in (*names, "libcublas.so.12"):
        for folder in _FOLDERS:
            try:
                return ctypes.CDLL(folder + name)
            except OSError:
                continue
    raise EnvironmentMissingError(
        "cuBLAS is not installed", hint="install JetPack's CUDA libraries"
    )


def _load(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise EnvironmentMissingError(
            f"there is no NVIDIA driver: {error}", hint="install it, or measure the processor"
        ) from None


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = getattr(library, name)(*arguments)
    if code != 0:
        raise EngineError(f"{name} failed with code {code}", hint="see anoco-edge doctor")
