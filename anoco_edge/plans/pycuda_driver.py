"""Reaches the GPU through pycuda, for programs that use it themselves, in the primary context.

TensorRT and our scorer use the primary context, too, so that all of them can use the same pointers.
pycuda.autoinit makes a context of its own and is therefore never imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, EnvironmentMissingError
from anoco_edge.plans.device import (
    VARIABLE,
    CapturedGraph,
    Device,
    NoGraphsError,
    check_fits,
    driver_name,
    failure,
    no_gpu,
)

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING; pycuda has no name for it


class Pycuda:
    """Wraps pycuda's driver module; its exceptions become ours, with the call that failed."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        with self.named("cuInit"):
            driver.init()

    def describe(self) -> Device:
        with self.named("cuDeviceGet"):
            if not self.driver.Device.count():
                raise no_gpu()
            device = self.driver.Device(0)
            major, minor = device.compute_capability()
            version = self.driver.get_driver_version()
            count = self.driver.device_attribute.MULTIPROCESSOR_COUNT
            return Device(
                name=device.name(),
                capability=f"sm{major}{minor}",
                driver=driver_name(version),
                multiprocessors=int(device.get_attribute(count)),
                memory=int(device.total_memory()),
            )

    def open_memory(self) -> PycudaMemory:
        return PycudaMemory(self)

    @contextlib.contextmanager
    def named(self, call: str) -> Iterator[None]:
        """Turn an error of pycuda in the `with` into one of ours that names this call."""
        try:
            yield
        except self.driver.Error as error:
            text = str(error)
            kind = "out of memory" if isinstance(error, self.driver.MemoryError) else ""
            if "no CUDA-capable device" in text or "no_device" in text.lower():
                kind = "no device"
            raise failure(call, text, kind) from None


class PycudaMemory:
    """`DeviceMemory` by pycuda."""

    def __init__(self, cuda: Pycuda) -> None:
        self._cuda = cuda
        self._buffers: dict[int, tuple[Any, int]] = {}
        self._host: list[Any] = []
        with cuda.named("cuDevicePrimaryCtxRetain"):
            self._context = cuda.driver.Device(0).retain_primary_context()
        try:
            with self._inside("cuStreamCreate"):
                self._stream = cuda.driver.Stream(_NON_BLOCKING)
        except AnocoError:
            self._context.detach()
            raise
        self.stream = int(self._stream.handle)

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Make the context of this memory the current one of this thread, for a `with`."""
        return self._inside("cuCtxPushCurrent")

    def allocate(self, size: int) -> int:
        """Allocate bytes on the GPU, until `close`."""
        with self._inside("cuMemAlloc"):
            buffer = self._cuda.driver.mem_alloc(size)
        self._buffers[int(buffer)] = (buffer, size)
        return int(buffer)

    def allocate_host(self, size: int) -> NDArray[np.uint8]:
        """Allocate bytes of page-locked memory, until `close`."""
        with self._inside("cuMemHostAlloc"):
            made: NDArray[np.uint8] = self._cuda.driver.pagelocked_empty(size, np.uint8)
        self._host.append(made.base)
        return made

    def copy_in(self, pointer: int, array: NDArray[Any]) -> None:
        """Queue a copy to the GPU; the array must live until `wait`."""
        buffer, size = self._buffers[pointer]
        check_fits(array, size)
        with self._inside("cuMemcpyHtoDAsync"):
            self._cuda.driver.memcpy_htod_async(buffer, array, self._stream)

    def copy_out(self, array: NDArray[Any], pointer: int) -> None:
        """Queue a copy from the GPU; the array is filled after `wait`."""
        buffer, size = self._buffers[pointer]
        check_fits(array, size)
        with self._inside("cuMemcpyDtoHAsync"):
            self._cuda.driver.memcpy_dtoh_async(array, buffer, self._stream)

    def wait(self) -> None:
        """Wait until everything that was queued is done."""
        with self._inside("cuStreamSynchronize"):
            self._stream.synchronize()

    def capture(self, work: Callable[[], None]) -> CapturedGraph:
        """Raise, because pycuda wraps none of CUDA's calls for graphs."""
        raise NoGraphsError("pycuda has no CUDA graphs", hint=f"leave {VARIABLE} unset")

    def close(self) -> None:
        """Free everything; a GPU that failed before fails again here, which is not reported."""
        if self._stream is None:
            return
        stream, self._stream, self.stream = self._stream, None, 0
        with contextlib.suppress(self._cuda.driver.Error):
            self._context.push()
            try:
                with contextlib.suppress(self._cuda.driver.Error):
                    stream.synchronize()  # queued work still uses the buffers
                for buffer, _ in self._buffers.values():
                    with contextlib.suppress(self._cuda.driver.Error):
                        buffer.free()
                for host in self._host:
                    with contextlib.suppress(self._cuda.driver.Error):
                        host.free()
                self._buffers.clear()
                self._host.clear()
                del stream  # pycuda destroys it here, while its context is current
            finally:
                self._cuda.driver.Context.pop()
        self._context.detach()

    @contextlib.contextmanager
    def _inside(self, call: str) -> Iterator[None]:
        """Make the primary context current; other threads have other contexts, or none."""
        with self._cuda.named(call):
            self._context.push()
            try:
                yield
            finally:
                self._cuda.driver.Context.pop()


def load() -> Pycuda | None:
    """Load the binding; None if it is not installed."""
    try:
        driver = import_module("pycuda.driver")
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        raise EnvironmentMissingError(
            f"pycuda is installed but does not load: {error}",
            hint=f"it fits one version of CUDA only: install it again, or leave {VARIABLE} unset",
        ) from None
    return Pycuda(driver)
