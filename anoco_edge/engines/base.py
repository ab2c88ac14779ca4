"""What every engine has in common: the protocol, its settings, and checks of its output."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.errors import BundleError, EngineError
from anoco_edge.scoring.device_array import DeviceArray

CpuPrecision = Literal["auto", "fp32", "bf16", "int8"]
"""How the products of the backbone are computed on a processor; see `cpu_precision`."""

_MAX_REASON = 400  # characters of an engine's own error message


@dataclass(frozen=True)
class EngineSettings:
    """How an engine runs.

    `threads` is their number; 0 uses all cores. `arena` keeps memory between runs, which is faster
    and holds the most that was ever needed. `device` is for engines that know several: openvino
    takes CPU, GPU, NPU or AUTO. `cpu_precision` is for engines that compute on the processor: with
    `auto`, `open_tested_engine` chooses, and an engine that is opened without it computes in the
    graph's own precision. `blocking_sync` lets threads that wait for an NVIDIA GPU sleep, in the
    whole process; it changes nothing where no GPU is used.

    >>> EngineSettings(blocking_sync=True).device
    'CPU'
    """

    threads: int = 0
    arena: bool = True
    device: str = "CPU"
    cpu_precision: CpuPrecision = "auto"
    blocking_sync: bool = False


class Engine(Protocol):
    """Turns pictures into patch features.

    `features` takes uint8 [batch, height, width, 3] RGB and gives float32 [batch, patches, dim].
    `fingerprint` names everything that may change the features: a self-test that passed is
    remembered for it.
    """

    name: str
    fingerprint: str

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]: ...


def graph_precision(bundle: Bundle) -> CpuPrecision:
    """Return how a processor computes the bundle's graph if nothing else is asked of it.

    An FP16 graph, which is made for GPUs, is computed in FP32 from weights that are rounded.
    """
    return "int8" if bundle.manifest.backbone.precision == "int8" else "fp32"


def computed_in(engine: Engine) -> str | None:
    """Return the precision in which an engine computes on the processor; None if it does not say.

    Only engines that know several say it, in an attribute `cpu_precision`.
    """
    found: str | None = getattr(engine, "cpu_precision", None)
    return found


@runtime_checkable
class DeviceEngine(Engine, Protocol):
    """An engine that can leave features on the GPU, of at most `max_batch` pictures at a time."""

    max_batch: int

    def on_device(self, pixels: NDArray[np.uint8]) -> AbstractContextManager[DeviceArray]: ...


def engine_failed(name: str, batch: int, error: Exception) -> EngineError:
    """Make the one-line error for whatever an engine raised while it ran.

    >>> str(engine_failed("onnxruntime", 2, RuntimeError("no memory")))[:51]
    'onnxruntime failed on a batch of 2: no memory; free'
    """
    return EngineError(
        f"{name} failed on a batch of {batch}: {str(error)[:_MAX_REASON] or type(error).__name__}",
        hint="free memory if it is short, or use another engine; see anoco-edge doctor",
    )


def check_features(bundle: Bundle, features: NDArray[np.float32], batch: int) -> None:
    """Check that the output of a run is what the manifest states, before it is used."""
    check_shape(bundle, features.shape[1:])
    if len(features) != batch or features.dtype != np.float32:
        raise BundleError(
            f"backbone.onnx gives {len(features)} grids of {features.dtype} for a batch of "
            f"{batch}, not as many of float32",
            hint="export the bundle again",
        )


def check_shape(bundle: Bundle, shape: tuple[int, ...]) -> None:
    """Check that the numbers of patches and features are those that the manifest states."""
    contract = bundle.manifest.input
    wanted = (contract.rows * contract.cols, contract.dim)
    if shape != wanted:
        raise BundleError(
            f"backbone.onnx gives features of shape {shape}, the manifest says {wanted}",
            hint="export the bundle again",
        )
