"""The NVIDIA GPU of this machine: what it is, and memory on it, through cuda-python."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, EnvironmentMissingError, missing

_DRIVER = Path("/proc/driver/nvidia/version")
_HINTS = {
    "cudaErrorNoDevice": "plug an NVIDIA GPU in, or use another engine",
    "cudaErrorInsufficientDriver": "install the NVIDIA driver (or a newer one), or use another "
    "engine",
    "cudaErrorMemoryAllocation": "the GPU's memory is full: stop what else uses it, or build with "
    "a smaller --batch",
}


@dataclass(frozen=True)
class Device:
    """What a plan is bound to, beside the version of TensorRT."""

    name: str
    capability: str
    driver: str


class DeviceMemory(Protocol):
    """Buffers on a GPU and one stream of its own; copies are queued until `wait`."""

    stream: int

    def allocate(self, size: int) -> int: ...

    def copy_in(self, pointer: int, array: NDArray[Any]) -> None: ...

    def copy_out(self, array: NDArray[Any], pointer: int) -> None: ...

    def wait(self) -> None: ...

    def close(self) -> None: ...


def current_device() -> Device:
    """The GPU that will run; without one the error says what is missing."""
    cuda = _Calls()
    (count,) = cuda("cudaGetDeviceCount")
    if not count:
        raise EnvironmentMissingError("there is no NVIDIA GPU", hint=_HINTS["cudaErrorNoDevice"])
    (number,) = cuda("cudaGetDevice")
    (properties,) = cuda("cudaGetDeviceProperties", number)
    (version,) = cuda("cudaDriverGetVersion")
    name = properties.name
    return Device(
        name=(name.decode() if isinstance(name, bytes) else str(name)).strip("\0 "),
        capability=f"sm{properties.major}{properties.minor}",
        driver=" ".join(filter(None, (f"cuda {version}", _driver_version()))),
    )


@dataclass
class CudaMemory:
    """`DeviceMemory` by cuda-python."""

    stream: int = 0
    _buffers: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._cuda = _Calls()
        # The default stream would wait for, and hold up, everything else on the GPU.
        (stream,) = self._cuda(
            "cudaStreamCreateWithFlags", self._cuda.constant("cudaStreamNonBlocking")
        )
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
        if not array.flags.c_contiguous or array.nbytes > self._buffers[pointer]:
            raise AnocoError(f"an array of shape {array.shape} does not fit its buffer on the GPU")
        direction = self._cuda.member("cudaMemcpyKind", kind)
        self._cuda("cudaMemcpyAsync", to, of, array.nbytes, direction, self.stream)


class _Calls:
    """Calls of the CUDA runtime by name, each of whose return codes is looked at."""

    def __init__(self) -> None:
        try:
            self._runtime: Any = import_module("cuda.bindings.runtime")
        except ImportError:
            raise missing("cuda-python", "tensorrt", "to use an NVIDIA GPU") from None

    def __call__(self, name: str, *arguments: object) -> tuple[Any, ...]:
        try:
            status, *values = getattr(self._runtime, name)(*arguments)
        except RuntimeError as error:  # how the binding says that libcuda cannot be loaded
            raise EnvironmentMissingError(
                f"there is no NVIDIA driver ({name}: {error})",
                hint=_HINTS["cudaErrorInsufficientDriver"],
            ) from None
        if status != self.member("cudaError_t", "cudaSuccess"):
            raise _failed(name, getattr(status, "name", str(status)))
        return tuple(values)

    def constant(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def member(self, enumeration: str, name: str) -> Any:
        return getattr(getattr(self._runtime, enumeration), name)


def _failed(call: str, status: str) -> AnocoError:
    words = {
        "cudaErrorNoDevice": "there is no NVIDIA GPU",
        "cudaErrorInsufficientDriver": "there is no NVIDIA driver, or it is too old",
        "cudaErrorMemoryAllocation": "the GPU has not enough memory",
    }.get(status)
    if words:
        return EnvironmentMissingError(f"{words} ({call}: {status})", hint=_HINTS[status])
    return AnocoError(f"the CUDA call {call} failed: {status}", hint="see dmesg, restart the GPU")


def _driver_version() -> str:
    """The kernel module's version, which a plan depends on and CUDA does not tell."""
    try:
        found = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", _DRIVER.read_text(errors="replace"))
    except OSError:
        return ""
    return found[0] if found else ""
