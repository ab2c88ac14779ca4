"""ONNX Runtime's GPU providers, played by its CPU provider; values "on the GPU" are counted."""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest

GPU = ("CUDAExecutionProvider", "TensorrtExecutionProvider")


class FakeOrtGpu:
    """What was asked of it; `starts` are the providers that do not fall back."""

    def __init__(self) -> None:
        self.starts: tuple[str, ...] = GPU
        self.options: dict[str, dict[str, str]] = {}
        self.allocated: list[tuple[int, ...]] = []
        self.runs = 0
        self.broken_run = ""


def install_ort_gpu(monkeypatch: pytest.MonkeyPatch) -> FakeOrtGpu:
    """From now on onnxruntime is its GPU build, on a machine that has a GPU."""
    fake = FakeOrtGpu()
    real_session = onnxruntime.InferenceSession
    real_value = onnxruntime.OrtValue.ortvalue_from_shape_and_type

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
        return real_value(shape, dtype, "cpu", 0)

    listed = [*reversed(GPU), "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
    monkeypatch.setattr(onnxruntime.OrtValue, "ortvalue_from_shape_and_type", allocate)
    return fake
