"""A double of ONNX Runtime's GPU providers, run by its CPU provider.

Values "on the GPU" are counted. With the simulated driver they lie in managed memory, which both
the CPU and our scorer read.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest

from doubles.simulated import SimulatedGpu

GPU = ("CUDAExecutionProvider", "TensorrtExecutionProvider")


class FakeOrtGpu:
    """Records what was asked of it; `starts` lists the providers that do not fall back."""

    def __init__(self) -> None:
        self.starts: tuple[str, ...] = GPU
        self.options: dict[str, dict[str, str]] = {}
        self.allocated: list[tuple[int, ...]] = []
        self.runs = 0
        self.fetched = 0  # values that were copied back to the CPU
        self.broken_run = ""


def managed_array(memory: SimulatedGpu, shape: list[int], dtype: Any) -> Any:
    """Allocate an array that lives until the process ends, because ONNX Runtime may hold it."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = (ctypes.c_char * size).from_address(memory.allocate_managed(size))
    return np.frombuffer(raw, dtype).reshape(shape)


def install_ort_gpu(
    monkeypatch: pytest.MonkeyPatch, memory: SimulatedGpu | None = None
) -> FakeOrtGpu:
    """Make onnxruntime look like its GPU build, on a machine that has a GPU."""
    fake = FakeOrtGpu()
    real_session = onnxruntime.InferenceSession
    real_value = onnxruntime.OrtValue.ortvalue_from_shape_and_type
    real_numpy: Callable[[Any], Any] = onnxruntime.OrtValue.numpy

    class Session(real_session):  # type: ignore[misc, valid-type]
        def __init__(self, model: Any, options: Any = None, *, providers: Any, **more: Any) -> None:
            fake.options |= {p[0]: p[1] for p in providers if not isinstance(p, str)}
            if any(not isinstance(p, str) for p in providers):
                assert more == {"enable_fallback": 0}, "a fallback would be silent"
            self._asked = [p if isinstance(p, str) else p[0] for p in providers]
            super().__init__(model, options, providers=["CPUExecutionProvider"])

        def get_providers(self) -> list[str]:
            started = [p for p in self._asked if p in fake.starts]
            return [*started, "CPUExecutionProvider"]

        def run_with_iobinding(self, binding: Any, options: Any = None) -> None:
            if fake.broken_run:
                raise RuntimeError(fake.broken_run)
            fake.runs += 1
            super().run_with_iobinding(binding, options)

    def allocate(shape: list[int], dtype: Any, device: str, number: int) -> Any:
        assert (device, number) == ("cuda", 0)
        fake.allocated.append(tuple(shape))
        if memory is not None:
            return onnxruntime.OrtValue.ortvalue_from_numpy(managed_array(memory, shape, dtype))
        return real_value(shape, dtype, "cpu", 0)

    def fetch(value: Any) -> Any:
        fake.fetched += 1
        return real_numpy(value)

    listed = [*reversed(GPU), "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
    monkeypatch.setattr(onnxruntime.OrtValue, "ortvalue_from_shape_and_type", allocate)
    monkeypatch.setattr(onnxruntime.OrtValue, "numpy", fetch)
    return fake
