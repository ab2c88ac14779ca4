"""A double of `cuda.bindings.runtime` on the simulated driver's memory, stricter than the real one.

Copies and kernels run only when their stream is waited for. Every pointer must be the start of a
buffer that still exists, and nothing may be larger than its buffer.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from doubles.simulated import SimulatedGpu


class cudaError_t(IntEnum):
    cudaSuccess = 0
    cudaErrorMemoryAllocation = 2
    cudaErrorInsufficientDriver = 35
    cudaErrorNoDevice = 100
    cudaErrorIllegalAddress = 700
    cudaErrorStreamCaptureInvalidated = 901


class cudaMemcpyKind(IntEnum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2


class cudaStreamCaptureMode(IntEnum):
    cudaStreamCaptureModeThreadLocal = 1


class FakeCuda(ModuleType):
    """The module; `fail` makes a call return an error, and `calls` lists the calls in their order.

    `buffers` and `host` hold sizes by pointer, `copied` the bytes that came back to the CPU,
    `graphs` and `execs` what was captured. Code that may not be captured calls `spoil_capture`.
    """

    cudaError_t = cudaError_t
    cudaMemcpyKind = cudaMemcpyKind
    cudaStreamCaptureMode = cudaStreamCaptureMode
    cudaStreamNonBlocking = 1
    cudaHostAllocDefault = 0

    def __init__(
        self, memory: SimulatedGpu, gpu: str = "Orin", capability: tuple[int, int] = (8, 7)
    ) -> None:
        super().__init__("cuda.bindings.runtime")
        self.gpu, self.capability, self.driver, self.count = gpu, capability, 12060, 1
        self.multiprocessors = 16
        self.fail: dict[str, cudaError_t] = {}
        self.refused: set[str] = set()
        self.calls: list[str] = []
        self.memory = memory
        self.buffers: dict[int, int] = {}
        self.streams: set[int] = set()
        self.host: dict[int, int] = {}
        self.copied: list[int] = []
        self.graphs: set[int] = set()
        self.execs: set[int] = set()
        self._recorded: list[int] = []  # the work of graphs
        self.spoilt = False
        self.closed = False
        self.strays: list[str] = []  # calls that were made outside of the primary context

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not (name.startswith("cuda") and callable(found) and hasattr(found, "__func__")):
            return found
        self.calls.append(name)
        if "Device" not in name and name != "cudaDriverGetVersion" and not self.memory.inside():
            self.strays.append(name)
        if self.closed:  # an engine that a failed test kept; its memory is already freed
            return lambda *_: (cudaError_t.cudaSuccess,)
        # The work is finished nevertheless.
        if name == "cudaStreamSynchronize" and name in self.fail:
            return lambda stream: (self.fail[name], *found(stream))
        if name in self.fail:
            return lambda *_: (self.fail[name], None)
        return lambda *arguments: _returned(found, arguments)

    def refuse(self, call: str) -> None:
        """Make calls of a capture fail like `fail`; what they would end is ended nevertheless."""
        self.refused.add(call)

    def enqueue(self, stream: int, work: Callable[[], None]) -> None:
        """Queue work like a kernel, for the fake TensorRT."""
        assert stream in self.streams
        captures = self.memory.captures
        number = self.memory.queue(stream, work, once=not captures)
        if captures:
            self._recorded.append(number)

    def close(self) -> None:
        """Free what a test left behind, so that the next one starts with an empty GPU."""
        gc.collect()  # engines that nobody holds free their own
        assert not self.memory.captures and not self.graphs
        for stream in self.streams:
            self.memory("cuStreamSynchronize", stream)
            self.memory("cuStreamDestroy_v2", stream)
        for graph in self.execs:
            self.memory("cuGraphExecDestroy", graph)
        for number in self._recorded:
            self.memory.forget(number)
        for pointer in self.buffers:
            self.memory.free(pointer)
        for pointer in self.host:
            self.memory.free_host(pointer)
        self.host.clear()
        self.execs.clear()
        self.streams.clear()
        self.buffers.clear()
        self.closed = True

    def cudaGetDeviceCount(self) -> tuple[int]:
        return (self.count,)

    def cudaGetDeviceProperties(self, device: int) -> tuple[Any]:
        assert device == 0
        major, minor = self.capability
        found = SimpleNamespace(name=self.gpu.encode() + b"\0\0", major=major, minor=minor)
        found.multiProcessorCount, found.totalGlobalMem = self.multiprocessors, 8 << 30
        return (found,)

    def cudaDriverGetVersion(self) -> tuple[int]:
        return (self.driver,)

    def cudaStreamCreateWithFlags(self, flags: int) -> tuple[int]:
        assert flags == self.cudaStreamNonBlocking
        handle = self.memory.create_stream()
        self.streams.add(handle)
        return (handle,)

    def cudaStreamDestroy(self, stream: int) -> tuple[()]:
        self.streams.remove(stream)
        self.memory("cuStreamDestroy_v2", stream)
        return ()

    def cudaStreamSynchronize(self, stream: int) -> tuple[()]:
        assert stream in self.streams
        self.memory.wait(stream)
        return ()

    def cudaMalloc(self, size: int) -> tuple[int]:
        assert size > 0
        pointer = self.memory.allocate(size)
        self.buffers[pointer] = size
        return (pointer,)

    def cudaHostAlloc(self, size: int, flags: int) -> tuple[int]:
        assert size > 0 and flags == self.cudaHostAllocDefault
        pointer = self.memory.allocate_host(size)
        self.host[pointer] = size
        return (pointer,)

    def cudaFreeHost(self, pointer: int) -> tuple[()]:
        del self.host[pointer]
        self.memory.free_host(pointer)
        return ()

    def check_page_locked(self, pointer: int, size: int) -> None:
        """Check that memory is page-locked; CUDA would copy other memory synchronously."""
        assert any(
            start <= pointer and pointer + size <= start + n for start, n in self.host.items()
        )

    def cudaFree(self, pointer: int) -> tuple[()]:
        del self.buffers[pointer]
        self.memory.free(pointer)
        return ()

    def cudaMemcpyAsync(
        self, to: int, of: int, size: int, kind: cudaMemcpyKind, stream: int
    ) -> tuple[()]:
        inward = kind is cudaMemcpyKind.cudaMemcpyHostToDevice
        device, host = (to, of) if inward else (of, to)
        assert host not in self.buffers and 0 < size <= self.buffers[device]
        self.check_page_locked(host, size)
        if inward:
            self.memory("cuMemcpyHtoDAsync_v2", to, of, size, stream)
        else:
            self.copied.append(size)
            self.memory("cuMemcpyDtoHAsync_v2", to, of, size, stream)
        return ()

    def captures(self, stream: int) -> bool:
        """Whether what is queued in this stream is captured."""
        assert stream in self.streams
        return self.memory.captures

    def spoil_capture(self) -> None:
        """Mark the capture as invalid, so that it gives no graph."""
        assert self.memory.captures
        self.spoilt = True

    def cudaStreamBeginCapture(self, stream: int, mode: cudaStreamCaptureMode) -> tuple[()]:
        assert stream in self.streams
        if "cudaStreamBeginCapture" in self.refused:
            raise Failed(cudaError_t.cudaErrorStreamCaptureInvalidated)
        self.memory.begin_capture(stream, cudaStreamCaptureMode(mode))
        return ()

    def cudaStreamEndCapture(self, stream: int) -> tuple[int]:
        graph = self.memory.end_capture(stream)
        spoilt = self.spoilt or "cudaStreamEndCapture" in self.refused
        self.spoilt = False
        if spoilt:
            self.memory("cuGraphDestroy", graph)
            raise Failed(cudaError_t.cudaErrorStreamCaptureInvalidated)
        self.graphs.add(graph)
        return (graph,)

    def cudaGraphInstantiate(self, graph: int, flags: int) -> tuple[int]:
        assert graph in self.graphs and flags == 0
        if "cudaGraphInstantiate" in self.refused:
            raise Failed(cudaError_t.cudaErrorStreamCaptureInvalidated)
        made = self.memory.instantiate(graph)
        self.execs.add(made)
        return (made,)

    def cudaGraphDestroy(self, graph: int) -> tuple[()]:
        self.graphs.remove(graph)
        self.memory("cuGraphDestroy", graph)
        return ()

    def cudaGraphLaunch(self, graph: int, stream: int) -> tuple[()]:
        assert graph in self.execs and stream in self.streams
        self.memory("cuGraphLaunch", graph, stream)
        return ()

    def cudaGraphExecDestroy(self, graph: int) -> tuple[()]:
        self.execs.remove(graph)
        self.memory("cuGraphExecDestroy", graph)
        return ()


class Failed(Exception):
    """The return value of a call that failed with this code."""


def _returned(call: Callable[..., tuple[Any, ...]], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        return (cudaError_t.cudaSuccess, *call(*arguments))
    except Failed as failed:
        return (failed.args[0], None)


def install_cuda(monkeypatch: pytest.MonkeyPatch, memory: SimulatedGpu, **options: Any) -> FakeCuda:
    """Make the machine look as if it had a GPU, which cuda-python reaches."""
    fake = FakeCuda(memory, **options)
    monkeypatch.setenv("ANOCO_EDGE_CUDA_BINDING", "cuda-python")
    monkeypatch.setattr("anoco_edge.plans.libcuda.library_name", lambda: str(memory.path))
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", fake)
    return fake
