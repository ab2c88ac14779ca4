"""Gives Python the memory and streams of the simulated driver (runtime/tests/simcuda).

The native library uses the same driver, so our scorer finds there what a double puts on the GPU.
The driver is lazy (work runs when somebody waits for it) and strict (the host cannot touch device
memory; misuse ends the process).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_POINTER, _SIZE = ctypes.c_uint64, ctypes.c_size_t
_CALLS: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_int),
    "cuCtxSetCurrent": (ctypes.c_void_p,),
    "cuCtxGetCurrent": (ctypes.POINTER(ctypes.c_void_p),),
    "cuMemAlloc_v2": (ctypes.POINTER(_POINTER), _SIZE),
    "cuMemAllocManaged": (ctypes.POINTER(_POINTER), _SIZE, ctypes.c_uint),
    "cuMemHostAlloc": (ctypes.POINTER(ctypes.c_void_p), _SIZE, ctypes.c_uint),
    "cuMemFreeHost": (ctypes.c_void_p,),
    "cuMemFree_v2": (_POINTER,),
    "cuMemcpyHtoDAsync_v2": (_POINTER, ctypes.c_void_p, _SIZE, ctypes.c_void_p),
    "cuMemcpyDtoHAsync_v2": (ctypes.c_void_p, _POINTER, _SIZE, ctypes.c_void_p),
    "cuMemcpyHtoD_v2": (_POINTER, ctypes.c_void_p, _SIZE),
    "cuMemcpyDtoH_v2": (ctypes.c_void_p, _POINTER, _SIZE),
    "cuStreamCreate": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint),
    "cuStreamDestroy_v2": (ctypes.c_void_p,),
    "cuStreamSynchronize": (ctypes.c_void_p,),
    "cuStreamBeginCapture_v2": (ctypes.c_void_p, ctypes.c_int),
    "cuStreamEndCapture": (ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)),
    "cuGraphInstantiateWithFlags": (
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_void_p,
        ctypes.c_uint64,
    ),
    "cuGraphLaunch": (ctypes.c_void_p, ctypes.c_void_p),
    "cuGraphExecDestroy": (ctypes.c_void_p,),
    "cuGraphDestroy": (ctypes.c_void_p,),
    "simcuda_enqueue": (ctypes.c_void_p, _WORK, ctypes.c_void_p),
}


class SimulatedGpu:
    """The simulated GPU of this process, whose primary context stays until the process ends."""

    def __init__(self, driver: Path) -> None:
        self._driver = ctypes.CDLL(str(driver))
        for name, types in _CALLS.items():
            getattr(self._driver, name).argtypes = types
        self._call("cuInit", 0)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", self._context, 0)
        self._waiting: list[Any] = []  # queued work must live until it ran
        # What a graph that is being captured must keep alive.
        self._captured: list[Any] | None = None
        self._kept: dict[int, list[Any]] = {}  # the same for each graph
        self._failures: list[BaseException] = []

    def allocate(self, size: int) -> int:
        pointer = _POINTER()
        self("cuMemAlloc_v2", pointer, size)
        return pointer.value

    def allocate_managed(self, size: int) -> int:
        """Allocate memory that the CPU may touch too, while no running work uses it."""
        pointer = _POINTER()
        self("cuMemAllocManaged", pointer, size, 1)
        return pointer.value

    def allocate_host(self, size: int) -> int:
        """Allocate page-locked memory, which the host may not touch while a copy uses it."""
        pointer = ctypes.c_void_p()
        self("cuMemHostAlloc", pointer, size, 0)
        assert pointer.value is not None
        return pointer.value

    def free_host(self, pointer: int) -> None:
        self("cuMemFreeHost", pointer)

    def free(self, pointer: int) -> None:
        self("cuMemFree_v2", pointer)

    def create_stream(self) -> int:
        stream = ctypes.c_void_p()
        self("cuStreamCreate", stream, 1)
        assert stream.value is not None
        return stream.value

    def wait(self, stream: int) -> None:
        self("cuStreamSynchronize", stream)
        self._waiting.clear()
        if self._failures:
            raise self._failures.pop(0)

    def enqueue(self, stream: int, work: Callable[[], None]) -> None:
        """Queue `work` like a kernel; it may touch device memory, and runs when waited for."""

        def run(_: Any) -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 (C cannot pass it on: `wait` does)
                self._failures.append(error)

        function = _WORK(run)
        (self._waiting if self._captured is None else self._captured).append(function)
        self("simcuda_enqueue", stream, function, None)

    @property
    def captures(self) -> bool:
        return self._captured is not None

    def begin_capture(self, stream: int, mode: int) -> None:
        self("cuStreamBeginCapture_v2", stream, mode)
        self._captured = []

    def end_capture(self, stream: int) -> int:
        found, kept = ctypes.c_void_p(), self._captured
        assert kept is not None
        self._captured = None
        self("cuStreamEndCapture", stream, found)
        assert found.value is not None
        self._kept[found.value] = kept
        return found.value

    def instantiate(self, graph: int) -> int:
        made = ctypes.c_void_p()
        self("cuGraphInstantiateWithFlags", made, graph, 0)
        assert made.value is not None
        self._kept[made.value] = self._kept[graph]
        return made.value

    def destroy_graph(self, graph: int, call: str) -> None:
        del self._kept[graph]
        self(call, graph)

    def read(self, pointer: int, size: int) -> bytes:
        """Read device memory, for tests."""
        found = ctypes.create_string_buffer(size)
        self("cuMemcpyDtoH_v2", ctypes.addressof(found), pointer, size)
        return found.raw

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call the driver with the primary context current, as the CUDA runtime does."""
        self._call("cuCtxSetCurrent", self._context)
        self._call(name, *arguments)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        assert status == 0, f"{name}: {status}"


_OPENED: dict[Path, SimulatedGpu] = {}


def simulated_gpu(driver: Path) -> SimulatedGpu:
    """Return the simulated GPU of this process."""
    if driver not in _OPENED:
        _OPENED[driver] = SimulatedGpu(driver)
    return _OPENED[driver]
