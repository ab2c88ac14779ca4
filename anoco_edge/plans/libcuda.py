"""Reaches the GPU through libcuda, the library of the NVIDIA driver, by ctypes.

No package is needed for that. Everything happens in the primary context of the GPU, which TensorRT,
our scorer, cuda-python and pycuda can share. A context that the calling program made current stays
current for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, EnvironmentMissingError
from anoco_edge.plans.device import Device, check_fits, driver_name, failure, no_gpu

VARIABLE = "ANOCO_CUDA_DRIVER"
OLDEST_DRIVER = 11040  # CUDA 11.4 brought cuGraphInstantiateWithFlags

_SUCCESS = 0
_OUT_OF_MEMORY = 2
_NO_DEVICE = 100
_CONTEXT_ACTIVE = 708  # CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, of older drivers
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_SCHEDULING, _BLOCKING_SYNC = 7, 4  # CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC
_KINDS = {
    _OUT_OF_MEMORY: "out of memory",
    _NO_DEVICE: "no device",
    _CONTEXT_ACTIVE: "in use already",
}

_Handle = ctypes.c_void_p
_Handles = ctypes.POINTER(ctypes.c_void_p)
_Address = ctypes.c_uint64  # CUdeviceptr
_Int = ctypes.c_int
_Ints = ctypes.POINTER(ctypes.c_int)
_Flags = ctypes.c_uint
_FlagsFound = ctypes.POINTER(ctypes.c_uint)
_Size = ctypes.c_size_t
# By the names that cuda.h gives them: of some calls the driver also has older versions.
_CALLS: dict[str, tuple[Any, ...]] = {
    "cuInit": (_Flags,),
    "cuDriverGetVersion": (_Ints,),
    "cuGetErrorName": (_Int, ctypes.POINTER(ctypes.c_char_p)),
    "cuDeviceGetCount": (_Ints,),
    "cuDeviceGet": (_Ints, _Int),
    "cuDeviceGetName": (ctypes.c_char_p, _Int, _Int),
    "cuDeviceGetAttribute": (_Ints, _Int, _Int),
    "cuDeviceTotalMem_v2": (ctypes.POINTER(_Size), _Int),
    "cuDevicePrimaryCtxRetain": (_Handles, _Int),
    "cuDevicePrimaryCtxRelease_v2": (_Int,),
    "cuDevicePrimaryCtxGetState": (_Int, _FlagsFound, _Ints),
    "cuDevicePrimaryCtxSetFlags_v2": (_Int, _Flags),
    "cuCtxPushCurrent_v2": (_Handle,),
    "cuCtxPopCurrent_v2": (_Handles,),
    "cuMemAlloc_v2": (ctypes.POINTER(_Address), _Size),
    "cuMemFree_v2": (_Address,),
    "cuMemHostAlloc": (_Handles, _Size, _Flags),
    "cuMemFreeHost": (_Handle,),
    "cuMemcpyHtoDAsync_v2": (_Address, _Handle, _Size, _Handle),
    "cuMemcpyDtoHAsync_v2": (_Handle, _Address, _Size, _Handle),
    "cuStreamCreate": (_Handles, _Flags),
    "cuStreamDestroy_v2": (_Handle,),
    "cuStreamSynchronize": (_Handle,),
    "cuStreamBeginCapture_v2": (_Handle, _Int),
    "cuStreamEndCapture": (_Handle, _Handles),
    "cuGraphInstantiateWithFlags": (_Handles, _Handle, ctypes.c_ulonglong),
    "cuGraphLaunch": (_Handle, _Handle),
    "cuGraphExecDestroy": (_Handle,),
    "cuGraphDestroy": (_Handle,),
}


def library_name() -> str:
    """Name the library of the driver, which an environment variable can replace.

    >>> library_name() if VARIABLE not in os.environ else "libcuda.so.1"
    'libcuda.so.1'
    """
    return os.environ.get(VARIABLE) or "libcuda.so.1"


class Libcuda:
    """Calls the driver by name, and checks each return code."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        status = library.cuInit(0)
        if status != _SUCCESS:
            kind = _KINDS.get(status, "driver does not start")
            raise failure("cuInit", self._status_name(status), kind)
        self.version = self._number("cuDriverGetVersion")
        if self.version < OLDEST_DRIVER:
            raise failure("cuDriverGetVersion", f"{self.version}", "no driver")

    def describe(self) -> Device:
        device = self.device()
        name = ctypes.create_string_buffer(256)
        self("cuDeviceGetName", name, len(name) - 1, device)
        major, minor = (self.attribute(number, device) for number in _CAPABILITY)
        memory = _Size()
        self("cuDeviceTotalMem_v2", memory, device)
        return Device(
            name=name.value.decode(errors="replace").strip(),
            capability=f"sm{major}{minor}",
            driver=driver_name(self.version),
            multiprocessors=self.attribute(_MULTIPROCESSORS, device),
            memory=memory.value,
        )

    def open_memory(self) -> LibcudaMemory:
        return LibcudaMemory(self)

    def use_blocking_sync(self) -> None:
        """Let threads that wait for the GPU sleep; see `anoco_edge.plans.device`."""
        device, flags, active = self.device(), _Flags(), ctypes.c_int()
        self("cuDevicePrimaryCtxGetState", device, flags, active)
        if flags.value & _SCHEDULING != _BLOCKING_SYNC:
            others = flags.value & ~_SCHEDULING
            self("cuDevicePrimaryCtxSetFlags_v2", device, others | _BLOCKING_SYNC)

    def device(self) -> int:
        """Return the first GPU; CUDA_VISIBLE_DEVICES says which one that is."""
        if not self._number("cuDeviceGetCount"):
            raise no_gpu()
        return self._number("cuDeviceGet", 0)

    def attribute(self, number: int, device: int) -> int:
        return self._number("cuDeviceGetAttribute", number, device)

    def __call__(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != _SUCCESS:
            raise failure(name, self._status_name(status), _KINDS.get(status, ""))

    def quietly(self, name: str, *arguments: object) -> None:
        """Free something; a GPU that failed before fails again here, which is not reported."""
        with contextlib.suppress(AnocoError):
            self(name, *arguments)

    def made(self, name: str, *arguments: object) -> int:
        """Call what returns a handle in its first argument, and return that."""
        handle = ctypes.c_void_p()
        self(name, handle, *arguments)
        return handle.value or 0

    def _number(self, name: str, *arguments: object) -> int:
        value = ctypes.c_int()
        self(name, value, *arguments)
        return value.value

    def _status_name(self, status: int) -> str:
        name = ctypes.c_char_p()
        known = self._library.cuGetErrorName(status, name) == _SUCCESS
        return name.value.decode() if known and name.value else f"error {status}"


class PrimaryContext:
    """The primary context of the first GPU, kept until `close`."""

    def __init__(self, cuda: Libcuda) -> None:
        self._cuda, self._device = cuda, cuda.device()
        self._handle = cuda.made("cuDevicePrimaryCtxRetain", self._device)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make it the current one of this thread, on top of the one that was."""
        self._cuda("cuCtxPushCurrent_v2", self._handle)
        try:
            yield
        finally:
            self._cuda.quietly("cuCtxPopCurrent_v2", ctypes.c_void_p())

    def close(self) -> None:
        """Release the context, once."""
        handle, self._handle = self._handle, 0
        if handle:
            self._cuda.quietly("cuDevicePrimaryCtxRelease_v2", self._device)


class LibcudaMemory:
    """`DeviceMemory` by libcuda."""

    def __init__(self, cuda: Libcuda) -> None:
        self._cuda = cuda
        self._buffers: dict[int, int] = {}
        self._host: list[int] = []
        self._graphs: set[ExecutableGraph] = set()
        self.stream = 0
        self.context = PrimaryContext(cuda)
        try:
            # The default stream would wait for everything else on the GPU, and make it wait.
            with self.context.current():
                self.stream = cuda.made("cuStreamCreate", _NON_BLOCKING)
        except AnocoError:
            self.context.close()
            raise

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Make the context of this memory the current one of this thread, for a `with`."""
        return self.context.current()

    def allocate(self, size: int) -> int:
        """Allocate bytes on the GPU, until `close`."""
        address = _Address()
        with self.current():
            self._cuda("cuMemAlloc_v2", address, size)
        self._buffers[address.value] = size
        return address.value

    def allocate_host(self, size: int) -> NDArray[np.uint8]:
        """Allocate bytes of page-locked memory, until `close`."""
        with self.current():
            pointer = self._cuda.made("cuMemHostAlloc", size, 0)
        self._host.append(pointer)
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pointer))

    def copy_in(self, pointer: int, array: NDArray[Any]) -> None:
        """Queue a copy to the GPU; the array must live until `wait`."""
        check_fits(array, self._buffers[pointer])
        with self.current():
            self._cuda(
                "cuMemcpyHtoDAsync_v2", pointer, array.ctypes.data, array.nbytes, self.stream
            )

    def copy_out(self, array: NDArray[Any], pointer: int) -> None:
        """Queue a copy from the GPU; the array is filled after `wait`."""
        check_fits(array, self._buffers[pointer])
        with self.current():
            self._cuda(
                "cuMemcpyDtoHAsync_v2", array.ctypes.data, pointer, array.nbytes, self.stream
            )

    def wait(self) -> None:
        """Wait until everything that was queued is done."""
        with self.current():
            self._cuda("cuStreamSynchronize", self.stream)

    def capture(self, work: Callable[[], None]) -> ExecutableGraph:
        """Record what `work` queues without doing it; raises where that is not possible."""
        with self.current():
            # Only this thread is recorded; other threads may use CUDA meanwhile.
            self._cuda("cuStreamBeginCapture_v2", self.stream, _THREAD_LOCAL)
            try:
                work()
            except BaseException:
                with contextlib.suppress(AnocoError):  # a capture that failed has no graph
                    self._cuda.quietly("cuGraphDestroy", self._end_capture())
                raise
            recorded = self._end_capture()
            try:
                made = self._cuda.made("cuGraphInstantiateWithFlags", recorded, 0)
            finally:
                self._cuda.quietly("cuGraphDestroy", recorded)
        return ExecutableGraph(
            self.context,
            partial(self._cuda, "cuGraphLaunch", made, self.stream),
            partial(self._cuda.quietly, "cuGraphExecDestroy", made),
            self._graphs,
        )

    def close(self) -> None:
        """Free everything."""
        stream, self.stream = self.stream, 0
        if not stream:
            return
        with contextlib.suppress(AnocoError), self.current():
            self._cuda.quietly("cuStreamSynchronize", stream)  # queued work uses the buffers
            for graph in tuple(self._graphs):
                graph.close()
            for pointer in self._buffers:
                self._cuda.quietly("cuMemFree_v2", pointer)
            for pointer in self._host:
                self._cuda.quietly("cuMemFreeHost", pointer)
            self._cuda.quietly("cuStreamDestroy_v2", stream)
        self._buffers.clear()
        self._host.clear()
        self.context.close()

    def _end_capture(self) -> int:
        graph = ctypes.c_void_p()
        self._cuda("cuStreamEndCapture", self.stream, graph)
        return graph.value or 0


class ExecutableGraph:
    """`CapturedGraph` of an adapter whose calls these are. `open_ones` are not closed yet."""

    def __init__(
        self,
        context: PrimaryContext,
        launch: Callable[[], object],
        free: Callable[[], object],
        open_ones: set[ExecutableGraph],
    ) -> None:
        self._context, self._launch, self._free = context, launch, free
        self._open_ones = open_ones
        open_ones.add(self)

    def launch(self) -> None:
        """Queue the recorded work."""
        with self._context.current():
            self._launch()

    def close(self) -> None:
        """Free the graph; it must not be running."""
        if self in self._open_ones:
            self._open_ones.remove(self)
            with contextlib.suppress(AnocoError), self._context.current():
                self._free()


def load() -> Libcuda:
    """Load the driver's library; without one the error says what is missing."""
    return Libcuda(_library(library_name()))


@lru_cache(maxsize=2)
def _library(name: str) -> ctypes.CDLL:
    """Load a library and declare its calls, once; one that does not load is tried again."""
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise failure("dlopen", str(error), "no driver") from None
    for call, types in _CALLS.items():
        try:
            function = getattr(library, call)
        except AttributeError:
            raise EnvironmentMissingError(
                f"the NVIDIA driver is too old: {name} has no {call}",
                hint=f"install a driver of CUDA {OLDEST_DRIVER // 1000}.4 or newer",
            ) from None
        function.argtypes = types
        function.restype = ctypes.c_int
    return library
