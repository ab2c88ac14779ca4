"""The NVIDIA GPU of this machine: what it is, and memory on it.

CUDA is reached through the driver's own library, which needs no package, or through cuda-python or
pycuda where `ANOCO_EDGE_CUDA_BINDING` names one of them; each has its adapter beside this file.
All of them use the primary context of the GPU. Arrays of other libraries need none of them: see
`anoco_edge.scoring.device_array`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import (
    AnocoError,
    EngineError,
    EnvironmentMissingError,
    UsageError,
)

VARIABLE = "ANOCO_EDGE_CUDA_BINDING"
BINDINGS = ("libcuda", "cuda-python", "pycuda")

_DRIVER = Path("/proc/driver/nvidia/version")
_KNOWN_FAILURES = {
    "no device": (
        "there is no NVIDIA GPU",
        "plug an NVIDIA GPU in, or use another engine",
    ),
    "no driver": (
        "there is no NVIDIA driver, or it is too old",
        "install the NVIDIA driver (or a newer one), or use another engine",
    ),
    "driver does not start": (
        "the NVIDIA driver does not start",
        "check it with nvidia-smi, restart the machine after an update, and give a container the "
        "GPU; or use another engine",
    ),
    "out of memory": (
        "the GPU has not enough memory",
        "the GPU's memory is full: stop what else uses it, or build with a smaller `batch`",
    ),
    "in use already": (
        "this process uses the GPU already, and its driver changes no settings any more",
        "open what asks for `blocking_sync` before anything else uses the GPU",
    ),
}


@dataclass(frozen=True)
class Device:
    """A GPU as far as a plan is bound to it: what it is, its driver and its size.

    The size is the number of its multiprocessors and the bytes of its memory; 0 if not known.
    """

    name: str
    capability: str
    driver: str
    multiprocessors: int = 0
    memory: int = 0

    @property
    def label(self) -> str:
        """The name with the size, because every Orin calls itself Orin.

        >>> Device("Orin", "sm87", "cuda 12060", multiprocessors=8, memory=7_990_000_000).label
        'Orin (8 SMs, 7 GB)'
        """
        if not self.multiprocessors:
            return self.name
        # The native library names it so, too (runtime/src/backends/tensorrt/fingerprint.cpp).
        gigabytes = (self.memory + (1 << 29)) >> 30
        return f"{self.name} ({self.multiprocessors} SMs, {gigabytes} GB)"


class CapturedGraph(Protocol):
    """Recorded work that is queued in one call. It must not run while it is closed."""

    def launch(self) -> None: ...

    def close(self) -> None: ...


class NoGraphsError(AnocoError):
    """A way to reach the GPU that never captures graphs, so that trying again is of no use."""


class DeviceMemory(Protocol):
    """Buffers on a GPU, and one stream of its own in which copies are queued until `wait`.

    Copies go to and from page-locked memory, which the GPU reaches by itself: `allocate_host`.
    Everything lies in the primary context. Who passes a pointer of it to another library makes that
    context the current one with `current`, because the calling program may use one of its own.
    """

    stream: int

    def current(self) -> AbstractContextManager[None]: ...

    def allocate(self, size: int) -> int: ...

    def allocate_host(self, size: int) -> NDArray[np.uint8]: ...

    def copy_in(self, pointer: int, array: NDArray[Any]) -> None: ...

    def copy_out(self, array: NDArray[Any], pointer: int) -> None: ...

    def wait(self) -> None: ...

    def capture(self, work: Callable[[], None]) -> CapturedGraph:
        """Record what `work` queues without doing it; raises where that is not possible."""
        ...

    def close(self) -> None: ...


class Adapter(Protocol):
    """One Python binding of CUDA."""

    def describe(self) -> Device: ...

    def open_memory(self) -> DeviceMemory: ...


def current_device() -> Device:
    """Describe the GPU that will run; without one the error says what is missing."""
    return _adapter().describe()


def open_memory() -> DeviceMemory:
    """Open memory on that GPU."""
    return _adapter().open_memory()


def use_blocking_sync() -> None:
    """Let threads that wait for the GPU sleep, where the driver may let them spin otherwise.

    It holds for the primary context of the GPU, which all bindings share, and so for the whole
    process. Call it before anything uses the GPU, as `EngineSettings(blocking_sync=True)` does:

        use_blocking_sync()
        memory = open_memory()
    """
    from anoco_edge.plans import libcuda

    libcuda.load().use_blocking_sync()


def _adapter() -> Adapter:
    from anoco_edge.plans import cuda_python, libcuda, pycuda_driver

    asked = os.environ.get(VARIABLE) or BINDINGS[0]
    if asked == "libcuda":
        return libcuda.load()
    if asked not in BINDINGS:
        raise UsageError(
            f"{VARIABLE} is {asked!r}", hint=f"use {', '.join(BINDINGS)}, or leave it unset"
        )
    adapter = cuda_python.load() if asked == "cuda-python" else pycuda_driver.load()
    if adapter is None:
        raise EnvironmentMissingError(
            f"{VARIABLE} asks for {asked}, which is not installed",
            hint=f"leave it unset, which needs no package, or: pip install 'anoco-edge[{asked}]'",
        )
    return adapter


def check_fits(array: NDArray[Any], size: int) -> None:
    """Raise unless an array is contiguous and not larger than its buffer."""
    if not array.flags.c_contiguous or array.nbytes > size:
        raise AnocoError(
            f"an array of shape {array.shape} and {array.nbytes} bytes does not fit its buffer of "
            f"{size} bytes on the GPU",
            hint="this is a bug of the engine, please report it",
        )


def failure(call: str, status: str, kind: str = "") -> AnocoError:
    """Make the error for a call of CUDA that failed; `kind` is one of the known failures, or empty.

    >>> str(failure("cudaMalloc", "cudaErrorMemoryAllocation", "out of memory"))[:58]
    'the GPU has not enough memory (cudaMalloc: cudaErrorMemory'
    """
    if kind:
        what, hint = _KNOWN_FAILURES[kind]
        return EnvironmentMissingError(f"{what} ({call}: {status})", hint=hint)
    return EngineError(
        f"the CUDA call {call} failed: {status}",
        hint="start the program again; if it fails again restart the machine, and look for lines "
        "with NVRM or Xid in the output of: sudo dmesg",
    )


def no_gpu() -> AnocoError:
    """Make the error for a driver that works and sees no GPU."""
    what, hint = _KNOWN_FAILURES["no device"]
    return EnvironmentMissingError(what, hint=hint)


def driver_name(version: int) -> str:
    """Name the driver by CUDA's version and the kernel module's, because a plan depends on both."""
    return " ".join(filter(None, (f"cuda {version}", _module_version())))


def _module_version() -> str:
    try:
        found = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", _DRIVER.read_text(errors="replace"))
    except OSError:
        return ""
    return found[0] if found else ""
