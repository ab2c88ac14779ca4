"""The simulated driver in the place of libcuda, so that our own ctypes calls run.

It offers the double of TensorRT the same as `FakeCuda` does. Buffers and streams are not looked up
here, because the driver itself ends a program that uses a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from doubles.simulated import SimulatedGpu, SimulatedNumbers


class _Any(dict[int, int]):
    """Knows every pointer, and no limit to its size."""

    def __contains__(self, pointer: object) -> bool:
        return bool(pointer)

    def __getitem__(self, pointer: int) -> int:
        return 1 << 40


class SimulatedLibcuda:
    """The driver of this process, with what it holds in addition to what it held before."""

    def __init__(self, memory: SimulatedGpu) -> None:
        self.memory = memory
        self.buffers, self.streams = _Any(), _Any()
        self._queued: list[int] = []
        self._before = memory.count()

    def held(self) -> tuple[int, int, int]:
        """Return the bytes on the GPU, the page-locked bytes and the number of objects."""
        now, then = self.memory.count(), self._before
        return (
            now.device_bytes - then.device_bytes,
            now.host_bytes - then.host_bytes,
            now.objects - then.objects,
        )

    def numbers(self) -> SimulatedNumbers:
        return self.memory.count()

    def enqueue(self, stream: int, work: Callable[[], None]) -> None:
        """Queue work like a kernel, for the fake TensorRT."""
        # A graph may launch it much later.
        self._queued.append(self.memory.queue(stream, work, once=False))

    def captures(self, stream: int) -> bool:
        """Whether what is queued in this stream is captured; TensorRT asks before each run."""
        assert self.memory.inside(), "TensorRT was called outside of the primary context"
        return self.memory.is_capturing(stream)

    def spoil_capture(self) -> None:
        """Mark the capture as invalid, so that it gives no graph."""
        self.memory.fail("cuStreamEndCapture", 1, 901)

    def close(self) -> None:
        """Check that work on the GPU did not fail, and that nothing is left to fail."""
        self.memory.fail("", 0)
        for number in self._queued:
            self.memory.forget(number)
        for failure in self.memory.take_failures():
            raise failure


def install_libcuda(monkeypatch: pytest.MonkeyPatch, memory: SimulatedGpu) -> SimulatedLibcuda:
    """Make the simulated driver the one that our adapter loads."""
    monkeypatch.delenv("ANOCO_EDGE_CUDA_BINDING", raising=False)
    monkeypatch.setattr("anoco_edge.plans.libcuda.library_name", lambda: str(memory.path))
    memory.outside()
    return SimulatedLibcuda(memory)
