"""Gives Python the memory and streams of the simulated driver (runtime/tests/simcuda).

The native library uses the same driver, so our scorer finds there what a double puts on the GPU.
The driver is lazy (work runs when somebody waits for it) and strict (the host cannot touch device
memory; misuse ends the process).
"""

from __future__ import annotations

import ctypes
import gc
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    "cuStreamIsCapturing": (ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)),
    "simcuda_fail": (ctypes.c_char_p, ctypes.c_int64, ctypes.c_int),
    "simcuda_count": (ctypes.c_void_p,),
    "simcuda_enqueue": (ctypes.c_void_p, _WORK, ctypes.c_void_p),
}


class SimulatedNumbers(ctypes.Structure):
    """`simcuda_numbers` of simcuda.h."""

    _fields_ = (
        ("device_bytes", ctypes.c_uint64),
        ("peak_device_bytes", ctypes.c_uint64),
        ("host_bytes", ctypes.c_uint64),
        ("objects", ctypes.c_int64),
        ("launches", ctypes.c_int64),
        ("graph_launches", ctypes.c_int64),
        ("pageable_copies", ctypes.c_int64),
    )


class SimulatedGpu:
    """The simulated GPU of this process, whose primary context stays until the process ends."""

    def __init__(self, driver: Path) -> None:
        self.path = driver
        self._driver = ctypes.CDLL(str(driver))
        for name, types in _CALLS.items():
            getattr(self._driver, name).argtypes = types
        self._call("cuInit", 0)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", self._context, 0)
        # C calls this one function for all work, so that none of it can be called after its end.
        self._run = _WORK(self._run_work)
        self._numbers = itertools.count(1)
        self._work: dict[int, Callable[[], None]] = {}
        self._once: set[int] = set()  # the work that is no part of a graph
        self._captures = False
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
        if self._failures:
            raise self._failures.pop(0)

    def queue(self, stream: int, work: Callable[[], None], *, once: bool) -> int:
        """Queue `work` like a kernel; it may touch device memory, and runs when waited for.

        What a graph launches runs more than `once`; the caller ends it with `forget`.
        """
        number = next(self._numbers)
        self._work[number] = work
        if once:
            self._once.add(number)
        self("simcuda_enqueue", stream, self._run, number)
        return number

    def forget(self, number: int) -> None:
        """Let go of work; it is an error if it runs after this."""
        del self._work[number]

    def take_failures(self) -> list[BaseException]:
        """Return what work raised since the last call: C cannot pass it on."""
        found, self._failures = self._failures, []
        return found

    def _run_work(self, number: int) -> None:
        try:
            with _no_collection():
                work = self._work[number]
                if number in self._once:
                    self._once.remove(number)
                    self.forget(number)
                work()
        except BaseException as error:  # noqa: BLE001 (see `take_failures`)
            self._failures.append(error)

    def inside(self) -> bool:
        """Whether this thread has made the primary context current."""
        found = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", found)
        return found.value == self._context.value

    def outside(self) -> None:
        """Take the context away that calls of this class made current in this thread."""
        self._call("cuCtxSetCurrent", None)

    def is_capturing(self, stream: int) -> bool:
        found = ctypes.c_int()
        self._call("cuStreamIsCapturing", stream, found)
        return found.value != 0

    def fail(self, call: str, count: int = 1, code: int = 0) -> None:
        """Make the next call of this name (the `count`-th) fail once; 0 switches it off."""
        self._driver.simcuda_fail(call.encode(), count, code)

    def count(self) -> SimulatedNumbers:
        """Count what lives on the simulated GPU, and what it did so far."""
        found = SimulatedNumbers()
        self._driver.simcuda_count(ctypes.addressof(found))
        return found

    @property
    def captures(self) -> bool:
        return self._captures

    def begin_capture(self, stream: int, mode: int) -> None:
        self("cuStreamBeginCapture_v2", stream, mode)
        self._captures = True

    def end_capture(self, stream: int) -> int:
        found = ctypes.c_void_p()
        self._captures = False
        self("cuStreamEndCapture", stream, found)
        assert found.value is not None
        return found.value

    def instantiate(self, graph: int) -> int:
        made = ctypes.c_void_p()
        self("cuGraphInstantiateWithFlags", made, graph, 0)
        assert made.value is not None
        return made.value

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


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python from freeing engines in the middle of a kernel, which no device does."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


_OPENED: dict[Path, SimulatedGpu] = {}


def simulated_gpu(driver: Path) -> SimulatedGpu:
    """Return the simulated GPU of this process."""
    if driver not in _OPENED:
        _OPENED[driver] = SimulatedGpu(driver)
    return _OPENED[driver]
