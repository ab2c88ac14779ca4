"""`cuda.bindings.runtime` on the processor's memory, stricter than the real one.

Copies and kernels run only when their stream is waited for, every pointer must be the start of a
buffer that is still there, and nothing may be larger than its buffer.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class cudaError_t(IntEnum):
    cudaSuccess = 0
    cudaErrorMemoryAllocation = 2
    cudaErrorInsufficientDriver = 35
    cudaErrorNoDevice = 100
    cudaErrorIllegalAddress = 700


class cudaMemcpyKind(IntEnum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2


class FakeCuda(ModuleType):
    """The module; `fail` makes a call return an error, `calls` are the names in their order."""

    cudaError_t = cudaError_t
    cudaMemcpyKind = cudaMemcpyKind
    cudaStreamNonBlocking = 1

    def __init__(self, gpu: str = "Orin", capability: tuple[int, int] = (8, 7)) -> None:
        super().__init__("cuda.bindings.runtime")
        self.gpu, self.capability, self.driver, self.count = gpu, capability, 12060, 1
        self.fail: dict[str, cudaError_t] = {}
        self.calls: list[str] = []
        self.buffers: dict[int, Any] = {}
        self.streams: dict[int, list[Callable[[], None]]] = {}

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not (name.startswith("cuda") and callable(found) and hasattr(found, "__func__")):
            return found
        self.calls.append(name)
        if name in self.fail:
            return lambda *_: (self.fail[name], None)
        return lambda *arguments: (cudaError_t.cudaSuccess, *found(*arguments))

    def enqueue(self, stream: int, work: Callable[[], None]) -> None:
        """For kernels: the fake TensorRT's."""
        self.streams[stream].append(work)

    def size(self, pointer: int) -> int:
        return ctypes.sizeof(self.buffers[pointer])

    def cudaGetDeviceCount(self) -> tuple[int]:
        return (self.count,)

    def cudaGetDevice(self) -> tuple[int]:
        return (0,)

    def cudaGetDeviceProperties(self, device: int) -> tuple[Any]:
        assert device == 0
        major, minor = self.capability
        return (SimpleNamespace(name=self.gpu.encode() + b"\0\0", major=major, minor=minor),)

    def cudaDriverGetVersion(self) -> tuple[int]:
        return (self.driver,)

    def cudaStreamCreateWithFlags(self, flags: int) -> tuple[int]:
        assert flags == self.cudaStreamNonBlocking
        handle = 0x5000 + len(self.streams)
        self.streams[handle] = []
        return (handle,)

    def cudaStreamDestroy(self, stream: int) -> tuple[()]:
        left = self.streams.pop(stream)
        assert not left or self.fail, "work was queued and never waited for"
        return ()

    def cudaStreamSynchronize(self, stream: int) -> tuple[()]:
        while self.streams[stream]:
            self.streams[stream].pop(0)()
        return ()

    def cudaMalloc(self, size: int) -> tuple[int]:
        assert size > 0
        buffer = (ctypes.c_uint8 * size).from_buffer_copy(b"\xa5" * size)
        self.buffers[ctypes.addressof(buffer)] = buffer
        return (ctypes.addressof(buffer),)

    def cudaFree(self, pointer: int) -> tuple[()]:
        del self.buffers[pointer]
        return ()

    def cudaMemcpyAsync(
        self, to: int, of: int, size: int, kind: cudaMemcpyKind, stream: int
    ) -> tuple[()]:
        device, host = (to, of) if kind is cudaMemcpyKind.cudaMemcpyHostToDevice else (of, to)
        assert host not in self.buffers and 0 < size <= self.size(device)
        self.enqueue(stream, lambda: ctypes.memmove(to, of, size) and None)
        return ()


def install_cuda(monkeypatch: pytest.MonkeyPatch, **options: Any) -> FakeCuda:
    """From now on the machine has a GPU."""
    fake = FakeCuda(**options)
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", fake)
    return fake
