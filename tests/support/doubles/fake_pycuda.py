"""A double of the part of `pycuda.driver` that we call, on the simulated driver's memory.

Every call needs a current context, as in the real module, and only the primary one is accepted.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from doubles.fake_cuda import FakeCuda


class Error(Exception):
    pass


class OutOfMemory(Error):
    pass


class Allocation:
    def __init__(self, fake: FakePycuda, size: int) -> None:
        self._fake = fake
        self._pointer = fake.memory.allocate(size)
        fake.buffers[self._pointer] = size

    def __int__(self) -> int:
        return self._pointer

    def free(self) -> None:
        self._fake.check("cuMemFree")
        del self._fake.buffers[self._pointer]
        self._fake.memory.free(self._pointer)


class HostAllocation:
    """Page-locked memory, which is the `base` of an array."""

    def __init__(self, fake: FakePycuda, size: int) -> None:
        self._fake = fake
        self._pointer = fake.memory.allocate_host(size)
        fake.host[self._pointer] = size
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (self._pointer, False),
        }

    def free(self) -> None:
        self._fake.check("cuMemFreeHost")
        del self._fake.host[self._pointer]
        self._fake.memory.free_host(self._pointer)


class Stream:
    def __init__(self, fake: FakePycuda) -> None:
        self._fake = fake
        self.handle = fake.memory.create_stream()
        fake.streams.add(self.handle)

    def synchronize(self) -> None:
        if not self._fake.cuda.closed:
            self._fake.memory.wait(self.handle)  # also if it is to fail
        self._fake.check("cuStreamSynchronize")

    def __del__(self) -> None:
        if self.handle in self._fake.streams:
            # An error keeps the frames that it passed through, and these keep the stream.
            assert self._fake.stack or self._fake.raised, "destroyed outside of its context"
            self._fake.streams.remove(self.handle)
            self._fake.memory("cuStreamDestroy_v2", self.handle)


class PrimaryContext:
    def __init__(self, fake: FakePycuda) -> None:
        self._fake = fake

    def push(self) -> None:
        self._fake.check("cuCtxPushCurrent", current=False)
        self._fake.stack.append(self)

    def detach(self) -> None:
        self._fake.retained -= 1


class FakePycuda(ModuleType):
    """The module; it offers TensorRT's double the same as `FakeCuda` does."""

    Error = Error
    MemoryError = OutOfMemory
    device_attribute = SimpleNamespace(MULTIPROCESSOR_COUNT="MULTIPROCESSOR_COUNT")

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__("pycuda.driver")
        self.cuda = cuda
        self.memory, self.buffers, self.streams = cuda.memory, cuda.buffers, cuda.streams
        self.copied, self.host = cuda.copied, cuda.host
        self.fail: dict[str, Exception] = {}
        self.raised = False
        self.stack: list[PrimaryContext] = []
        self.retained = 0
        self.count = 1
        self.initialised = False
        fake = self

        class Device:
            def __init__(self, number: int) -> None:
                assert fake.initialised and number == 0
                fake.check("cuDeviceGet", current=False)

            @staticmethod
            def count() -> int:
                return fake.count

            def name(self) -> str:
                return "Orin"

            def compute_capability(self) -> tuple[int, int]:
                return (8, 7)

            def get_attribute(self, attribute: str) -> int:
                assert attribute == "MULTIPROCESSOR_COUNT"
                return 16

            def total_memory(self) -> int:
                return 8 << 30

            def retain_primary_context(self) -> PrimaryContext:
                fake.retained += 1
                return PrimaryContext(fake)

        class Context:
            @staticmethod
            def pop() -> None:
                fake.stack.pop()

        self.Device, self.Context = Device, Context

    def check(self, call: str, current: bool = True) -> None:
        if self.cuda.closed:
            raise Error("the test is over")
        assert not current or self.stack, f"{call} without a current context"
        if call in self.fail:
            self.raised = True
            raise self.fail[call]

    def init(self) -> None:
        self.check("cuInit", current=False)
        self.initialised = True

    def get_driver_version(self) -> int:
        return 12060

    def Stream(self, flags: int) -> Stream:
        assert flags == 1, "the default stream would hold up everything else"
        self.check("cuStreamCreate")
        return Stream(self)

    def mem_alloc(self, size: int) -> Allocation:
        self.check("cuMemAlloc")
        return Allocation(self, size)

    def pagelocked_empty(self, shape: int, dtype: Any) -> Any:
        assert dtype is np.uint8
        self.check("cuMemHostAlloc")
        return np.asarray(HostAllocation(self, shape))

    def memcpy_htod_async(self, to: Allocation, array: Any, stream: Stream) -> None:
        self.check("cuMemcpyHtoDAsync")
        assert array.nbytes <= self.buffers[int(to)]
        self.cuda.check_page_locked(array.ctypes.data, array.nbytes)
        self.memory("cuMemcpyHtoDAsync_v2", int(to), array.ctypes.data, array.nbytes, stream.handle)

    def memcpy_dtoh_async(self, array: Any, of: Allocation, stream: Stream) -> None:
        self.check("cuMemcpyDtoHAsync")
        assert array.nbytes <= self.buffers[int(of)]
        self.cuda.check_page_locked(array.ctypes.data, array.nbytes)
        self.copied.append(array.nbytes)
        self.memory("cuMemcpyDtoHAsync_v2", array.ctypes.data, int(of), array.nbytes, stream.handle)


def install_pycuda(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> FakePycuda:
    """Make pycuda reach the GPU, in a program where cuda-python is not installed."""
    fake = FakePycuda(cuda)
    monkeypatch.setenv("ANOCO_EDGE_CUDA_BINDING", "pycuda")
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", fake)
    monkeypatch.setitem(sys.modules, "pycuda.autoinit", None)
    return fake
