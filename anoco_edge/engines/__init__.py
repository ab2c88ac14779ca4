"""Engines turn pixels into patch features. `auto` chooses and says why; a name never falls back."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.errors import BundleError, EngineError, UsageError, missing
from anoco_edge.scoring.device_array import DeviceArray

__all__ = [
    "ENGINES",
    "DeviceEngine",
    "Engine",
    "EngineSettings",
    "choose_engine",
    "open_engine",
]

ENGINES = (
    "onnxruntime",
    "onnxruntime-cuda",
    "onnxruntime-tensorrt",
    "openvino",
    "tensorrt",
    "tensorrt-rtx",
)
_MOST_WORDS = 400  # characters of what an engine says of its failure
_ORT_GPU = ("onnxruntime-cuda", "onnxruntime-tensorrt")
_PLANNED: tuple[Literal["tensorrt", "tensorrt-rtx"], ...] = ("tensorrt", "tensorrt-rtx")


@dataclass(frozen=True)
class EngineSettings:
    """Threads (0: all cores), memory (an arena is faster, and keeps what it once held), and for
    openvino its device: CPU, GPU, NPU or AUTO."""

    threads: int = 0
    arena: bool = True
    device: str = "CPU"


class Engine(Protocol):
    """`features` takes uint8 [batch, height, width, 3] RGB, gives float32 [batch, patches, dim]."""

    name: str
    fingerprint: str

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]: ...


@runtime_checkable
class DeviceEngine(Engine, Protocol):
    """An engine that can leave features on the GPU, of at most `max_batch` pictures at a time."""

    max_batch: int

    def on_device(self, pixels: NDArray[np.uint8]) -> AbstractContextManager[DeviceArray]: ...


def choose_engine(name: str = "auto", bundle: Bundle | None = None) -> tuple[str, str]:
    """The engine that will run, and why; plans are looked for when the bundle is known.

    >>> choose_engine("onnxruntime")
    ('onnxruntime', 'asked for')
    """
    if name == "auto":
        return _best_engine(bundle)
    if name not in ENGINES:
        raise UsageError(
            f"unknown engine {name!r}", hint=f"use auto or one of {', '.join(ENGINES)}"
        )
    return name, "asked for"


def _best_engine(bundle: Bundle | None) -> tuple[str, str]:
    if bundle is not None:
        from anoco_edge.engines.tensorrt import why_not

        for flavour in _PLANNED:
            if not why_not(flavour, bundle):
                return flavour, "a plan of this bundle runs on this machine's GPU"
    # On processors the two are as fast as each other within 10 %: no reason to try both.
    if find_spec("onnxruntime") is not None:
        return "onnxruntime", "it is installed, and no plan for a GPU runs here"
    if find_spec("openvino") is not None:
        return "openvino", "onnxruntime is not installed, and no plan for a GPU runs here"
    raise missing("onnxruntime", "cpu", "to run the backbone")


def open_engine(name: str, bundle: Bundle, settings: EngineSettings | None = None) -> Engine:
    """Load the bundle's backbone into an engine."""
    settings = settings or EngineSettings()
    chosen, _ = choose_engine(name, bundle)
    if settings.device != "CPU" and chosen != "openvino":
        raise UsageError(
            f"device {settings.device} was asked for, which {chosen} does not know",
            hint="devices are openvino's: add --engine openvino",
        )
    if chosen == "openvino":
        from anoco_edge.engines.openvino import OpenVinoEngine

        return OpenVinoEngine(bundle, settings)
    if chosen in _ORT_GPU:
        from anoco_edge.engines.ort_gpu import OnnxRuntimeGpuEngine

        return OnnxRuntimeGpuEngine(chosen, bundle, settings)
    for flavour in _PLANNED:
        if chosen == flavour:
            from anoco_edge.engines.tensorrt import TensorRtEngine

            return TensorRtEngine(flavour, bundle, settings)
    from anoco_edge.engines.ort import OnnxRuntimeEngine

    return OnnxRuntimeEngine(bundle, settings)


def engine_failed(name: str, batch: int, error: Exception) -> EngineError:
    """The one line for whatever an engine raised while it ran.

    >>> str(engine_failed("onnxruntime", 2, RuntimeError("no memory")))[:51]
    'onnxruntime failed on a batch of 2: no memory; free'
    """
    return EngineError(
        f"{name} failed on a batch of {batch}: {str(error)[:_MOST_WORDS] or type(error).__name__}",
        hint="free memory if it is short, or use another engine; see anoco-edge doctor",
    )


def check_features(bundle: Bundle, features: NDArray[np.float32], batch: int) -> None:
    """What came out of a run is what the manifest promises, before anybody uses it."""
    check_shape(bundle, features.shape[1:])
    if len(features) != batch or features.dtype != np.float32:
        raise BundleError(
            f"backbone.onnx gives {len(features)} grids of {features.dtype} for a batch of "
            f"{batch}, not as many of float32"
        )


def check_shape(bundle: Bundle, shape: tuple[int, ...]) -> None:
    """Patches and numbers a patch as the manifest promises them."""
    contract = bundle.manifest.input
    wanted = (contract.rows * contract.cols, contract.dim)
    if shape != wanted:
        raise BundleError(
            f"backbone.onnx gives features of shape {shape}, the manifest says {wanted}"
        )
