"""Reaches the GPU through cuda-python, NVIDIA's own binding of the CUDA runtime.

The runtime works in the context that is current, and a program may have made one of its own. So the
primary context is made current for every call, as TensorRT and our scorer expect it.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, EnvironmentMissingError
from anoco_edge.plans import libcuda
from anoco_edge.plans.device import VARIABLE, Device, check_fits, driver_name, failure, no_gpu

_KINDS = {
    "cudaErrorNoDevice": "no device",
    "cudaErrorInsufficientDriver": "no driver",
    "cudaErrorMemoryAllocation": "out of memory",
}


class CudaPython:
    """Calls the CUDA runtime by name, and checks each return code."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def describe(self) -> Device:
        (count,) = self("cudaGetDeviceCount")
        if not count:
            raise no_gpu()
        (properties,) = self("cudaGetDeviceProperties", 0)
        (version,) = self("cudaDriverGetVersion")
        name = properties.name
        return Device(
            name=(name.decode() if isinstance(name, bytes) else str(name)).strip("\0 "),
            capability=f"sm{properties.major}{properties.minor}",
            driver=driver_name(version),
            multiprocessors=int(properties.multiProcessorCount),
            memory=int(properties.totalGlobalMem),
        )

    def open_memory(self) -> CudaPythonMemory:
        return CudaPythonMemory(self)

    def __call__(self, name: str, *arguments: object) -> tuple[Any, ...]:
        try:
            status, *values = getattr(self._runtime, name)(*arguments)
        except RuntimeError as error:  # the binding raises it when libcuda cannot be loaded
            raise failure(name, str(error), "no driver") from None
        if status != self.member("cudaError_t", "cudaSuccess"):
            word = getattr(status, "name", str(status))
            raise failure(name, word, _KINDS.get(word, ""))
        return tuple(values)

    def quietly(self, name: str, handle: object) -> None:
        """Free something; a GPU that failed before fails again here, which is not reported."""
        with contextlib.suppress(AnocoError):
            self(name, handle)

    def constant(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def member(self, enumeration: str, name: str) -> Any:
        return getattr(getattr(self._runtime, enumeration), name)


class CudaPythonMemory:
    """`DeviceMemory` by cuda-python."""

    def __init__(self, cuda: CudaPython) -> None:
        self._cuda = cuda
        self._buffers: dict[int, int] = {}
        self._host: list[int] = []
        self._graphs: set[libcuda.ExecutableGraph] = set()
        self.stream = 0
        self.context = libcuda.PrimaryContext(libcuda.load())
        try:
            # The default stream would wait for everything else on the GPU, and make it wait.
            (stream,) = self._call(
                "cudaStreamCreateWithFlags", cuda.constant("cudaStreamNonBlocking")
            )
        except AnocoError:
            self.context.close()
            raise
        self.stream = int(stream)

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Make the context of this memory the current one of this thread, for a `with`."""
        return self.context.current()

    def allocate(self, size: int) -> int:
        """Allocate bytes on the GPU, until `close`."""
        (pointer,) = self._call("cudaMalloc", size)
        self._buffers[int(pointer)] = size
        return int(pointer)

    def allocate_host(self, size: int) -> NDArray[np.uint8]:
        """Allocate bytes of page-locked memory, until `close`."""
        (pointer,) = self._call("cudaHostAlloc", size, self._cuda.constant("cudaHostAllocDefault"))
        self._host.append(int(pointer))
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(int(pointer)))

    def copy_in(self, pointer: int, array: NDArray[Any]) -> None:
        """Queue a copy to the GPU; the array must live until `wait`."""
        self._copy(pointer, array.ctypes.data, array, pointer, "cudaMemcpyHostToDevice")

    def copy_out(self, array: NDArray[Any], pointer: int) -> None:
        """Queue a copy from the GPU; the array is filled after `wait`."""
        self._copy(array.ctypes.data, pointer, array, pointer, "cudaMemcpyDeviceToHost")

    def wait(self) -> None:
        """Wait until everything that was queued is done."""
        self._call("cudaStreamSynchronize", self.stream)

    def capture(self, work: Callable[[], None]) -> libcuda.ExecutableGraph:
        """Record what `work` queues without doing it; raises where that is not possible."""
        # Only this thread is recorded; other threads may use CUDA meanwhile.
        mode = self._cuda.member("cudaStreamCaptureMode", "cudaStreamCaptureModeThreadLocal")
        with self.current():
            self._cuda("cudaStreamBeginCapture", self.stream, mode)
            try:
                work()
            except BaseException:
                with contextlib.suppress(AnocoError):  # a capture that failed has no graph
                    self._cuda.quietly(
                        "cudaGraphDestroy", *self._cuda("cudaStreamEndCapture", self.stream)
                    )
                raise
            (recorded,) = self._cuda("cudaStreamEndCapture", self.stream)
            try:
                (made,) = self._cuda("cudaGraphInstantiate", recorded, 0)
            finally:
                self._cuda.quietly("cudaGraphDestroy", recorded)
        return libcuda.ExecutableGraph(
            self.context,
            partial(self._cuda, "cudaGraphLaunch", int(made), self.stream),
            partial(self._cuda.quietly, "cudaGraphExecDestroy", int(made)),
            self._graphs,
        )

    def close(self) -> None:
        """Free everything."""
        stream, self.stream = self.stream, 0
        if not stream:
            return
        with contextlib.suppress(AnocoError), self.current():
            self._cuda.quietly("cudaStreamSynchronize", stream)  # queued work uses the buffers
            for graph in tuple(self._graphs):
                graph.close()
            for pointer in self._buffers:
                self._cuda.quietly("cudaFree", pointer)
            for pointer in self._host:
                self._cuda.quietly("cudaFreeHost", pointer)
            self._cuda.quietly("cudaStreamDestroy", stream)
        self._buffers.clear()
        self._host.clear()
        self.context.close()

    def _call(self, name: str, *arguments: object) -> tuple[Any, ...]:
        with self.current():
            return self._cuda(name, *arguments)

    def _copy(self, to: int, of: int, array: NDArray[Any], pointer: int, kind: str) -> None:
        check_fits(array, self._buffers[pointer])
        direction = self._cuda.member("cudaMemcpyKind", kind)
        self._call("cudaMemcpyAsync", to, of, array.nbytes, direction, self.stream)


def load() -> CudaPython | None:
    """Load the binding; None if it is not installed."""
    try:
        return CudaPython(import_module("cuda.bindings.runtime"))
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        raise EnvironmentMissingError(
            f"cuda-python is installed but does not load: {error}",
            hint=f"install it again, or leave {VARIABLE} unset, which needs no package",
        ) from None
