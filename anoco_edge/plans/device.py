"""The NVIDIA GPU of this machine: what it is, and memory on it.

Through cuda-python, or through pycuda where only that is installed; each is one adapter beside
this file. Arrays of other libraries need neither: see `anoco_edge.scoring.device_array`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, EngineError, EnvironmentMissingError, missing

_DRIVER = Path("/proc/driver/nvidia/version")
_WORDS = {
    "no device": (
        "there is no NVIDIA GPU",
        "plug an NVIDIA GPU in, or use another engine",
    ),
    "no driver": (
        "there is no NVIDIA driver, or it is too old",
        "install the NVIDIA driver (or a newer one), or use another engine",
    ),
    "out of memory": (
        "the GPU has not enough memory",
        "the GPU's memory is full: stop what else uses it, or build with a smaller --batch",
    ),
}


@dataclass(frozen=True)
class Device:
    """What a plan is bound to, beside the version of TensorRT."""

    name: str
    capability: str
    driver: str


class CapturedGraph(Protocol):
    """Work that was recorded, to be queued at once; `close` it while it does not run."""

    def launch(self) -> None: ...

    def close(self) -> None: ...


class DeviceMemory(Protocol):
    """Buffers on a GPU and one stream of its own; copies are queued until `wait`.

    Copies are to and from page-locked memory, which the GPU reaches by itself: `allocate_host`.
    """

    stream: int

    def allocate(self, size: int) -> int: ...

    def allocate_host(self, size: int) -> NDArray[np.uint8]: ...

    def copy_in(self, pointer: int, array: NDArray[Any]) -> None: ...

    def copy_out(self, array: NDArray[Any], pointer: int) -> None: ...

    def wait(self) -> None: ...

    def capture(self, work: Callable[[], None]) -> CapturedGraph:
        """What `work` queues, recorded and not done; an error where that cannot be."""
        ...

    def close(self) -> None: ...


class Adapter(Protocol):
    """One binding of CUDA."""

    def describe(self) -> Device: ...

    def open_memory(self) -> DeviceMemory: ...


def current_device() -> Device:
    """The GPU that will run; without one the error says what is missing."""
    return _adapter().describe()


def open_memory() -> DeviceMemory:
    """Memory on that GPU."""
    return _adapter().open_memory()


def _adapter() -> Adapter:
    from anoco_edge.plans import cuda_python, pycuda_driver

    adapter = cuda_python.load() or pycuda_driver.load()
    if adapter is None:
        raise missing("cuda-python", "tensorrt", "to use an NVIDIA GPU")
    return adapter


def check_fits(array: NDArray[Any], size: int) -> None:
    """What is copied must lie without gaps, and not be larger than its buffer."""
    if not array.flags.c_contiguous or array.nbytes > size:
        raise AnocoError(f"an array of shape {array.shape} does not fit its buffer on the GPU")


def failure(call: str, status: str, kind: str = "") -> AnocoError:
    """A call that failed, in one of our words where there is one.

    >>> str(failure("cudaMalloc", "cudaErrorMemoryAllocation", "out of memory"))[:58]
    'the GPU has not enough memory (cudaMalloc: cudaErrorMemory'
    """
    if kind:
        what, hint = _WORDS[kind]
        return EnvironmentMissingError(f"{what} ({call}: {status})", hint=hint)
    return EngineError(f"the CUDA call {call} failed: {status}", hint="see dmesg, restart the GPU")


def no_gpu() -> AnocoError:
    """For a driver that works and sees none."""
    what, hint = _WORDS["no device"]
    return EnvironmentMissingError(what, hint=hint)


def driver_name(version: int) -> str:
    """CUDA's version of the driver, and the kernel module's, on which a plan depends too."""
    return " ".join(filter(None, (f"cuda {version}", _module_version())))


def _module_version() -> str:
    try:
        found = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", _DRIVER.read_text(errors="replace"))
    except OSError:
        return ""
    return found[0] if found else ""
