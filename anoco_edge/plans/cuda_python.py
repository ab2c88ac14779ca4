"""The GPU through cuda-python (NVIDIA's own binding): the CUDA runtime, call by call."""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any

from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, EnvironmentMissingError
from anoco_edge.plans.device import Device, check_fits, driver_name, failure, no_gpu

_KINDS = {
    "cudaErrorNoDevice": "no device",
    "cudaErrorInsufficientDriver": "no driver",
    "cudaErrorMemoryAllocation": "out of memory",
}


class CudaPython:
    """Calls of the CUDA runtime by name, each of whose return codes is looked at."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def describe(self) -> Device:
        (count,) = self("cudaGetDeviceCount")
        if not count:
            raise no_gpu()
        (number,) = self("cudaGetDevice")
        (properties,) = self("cudaGetDeviceProperties", number)
        (version,) = self("cudaDriverGetVersion")
        name = properties.name
        return Device(
            name=(name.decode() if isinstance(name, bytes) else str(name)).strip("\0 "),
            capability=f"sm{properties.major}{properties.minor}",
            driver=driver_name(version),
        )

    def open_memory(self) -> CudaPythonMemory:
        return CudaPythonMemory(self)

    def __call__(self, name: str, *arguments: object) -> tuple[Any, ...]:
        try:
            status, *values = getattr(self._runtime, name)(*arguments)
        except RuntimeError as error:  # how the binding says that libcuda cannot be loaded
            raise failure(name, str(error), "no driver") from None
        if status != self.member("cudaError_t", "cudaSuccess"):
            word = getattr(status, "name", str(status))
            raise failure(name, word, _KINDS.get(word, ""))
        return tuple(values)

    def constant(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def member(self, enumeration: str, name: str) -> Any:
        return getattr(getattr(self._runtime, enumeration), name)


class CudaPythonMemory:
    """`DeviceMemory` by cuda-python."""

    def __init__(self, cuda: CudaPython) -> None:
        self._cuda = cuda
        self._buffers: dict[int, int] = {}
        # The default stream would wait for, and hold up, everything else on the GPU.
        (stream,) = cuda("cudaStreamCreateWithFlags", cuda.constant("cudaStreamNonBlocking"))
        self.stream = int(stream)

    def allocate(self, size: int) -> int:
        """So many bytes on the GPU, until `close`."""
        (pointer,) = self._cuda("cudaMalloc", size)
        self._buffers[int(pointer)] = size
        return int(pointer)

    def copy_in(self, pointer: int, array: NDArray[Any]) -> None:
        """Queue a copy to the GPU; the array must live until `wait`."""
        self._copy(pointer, array.ctypes.data, array, pointer, "cudaMemcpyHostToDevice")

    def copy_out(self, array: NDArray[Any], pointer: int) -> None:
        """Queue a copy from the GPU; the array is filled after `wait`."""
        self._copy(array.ctypes.data, pointer, array, pointer, "cudaMemcpyDeviceToHost")

    def wait(self) -> None:
        """Until everything queued is done."""
        self._cuda("cudaStreamSynchronize", self.stream)

    def close(self) -> None:
        """Give everything back. A GPU that has failed fails here too, and that was said before."""
        stream, self.stream = self.stream, 0
        calls: list[tuple[str, int]] = []
        if stream:  # what is queued still uses the buffers
            calls = [("cudaStreamSynchronize", stream), ("cudaStreamDestroy", stream)]
        calls[1:1] = [("cudaFree", pointer) for pointer in self._buffers]
        self._buffers.clear()
        for call, handle in calls:
            with contextlib.suppress(AnocoError):
                self._cuda(call, handle)

    def _copy(self, to: int, of: int, array: NDArray[Any], pointer: int, kind: str) -> None:
        check_fits(array, self._buffers[pointer])
        direction = self._cuda.member("cudaMemcpyKind", kind)
        self._cuda("cudaMemcpyAsync", to, of, array.nbytes, direction, self.stream)


def load() -> CudaPython | None:
    """The binding, or None where it is not installed."""
    try:
        return CudaPython(import_module("cuda.bindings.runtime"))
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        raise EnvironmentMissingError(
            f"cuda-python is installed but does not load: {error}",
            hint="install it again with: pip install --force-reinstall 'anoco-edge[tensorrt]'",
        ) from None
