"""ONNX Runtime on an NVIDIA GPU, by its CUDA or its TensorRT provider.

Neither has run on a GPU yet: no machine that built them had one. Tests walk through them with
ONNX Runtime's CPU provider in place of theirs. What `session.get_providers()` says after a session
was made decides: a provider that does not start is an error, never a quiet run on the processor.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.errors import AnocoError, EngineError, UsageError
from anoco_edge.plans.cache import private_folder
from anoco_edge.scoring.device_array import DeviceArray
from anoco_edge.scoring.onnx_session import open_gpu_session
from anoco_edge.storage.hashes import sha256_bytes

if TYPE_CHECKING:
    from anoco_edge.engines import EngineSettings

Name = Literal["onnxruntime-cuda", "onnxruntime-tensorrt"]
NAMES: tuple[Name, ...] = get_args(Name)
PROVIDERS: dict[Name, str] = {
    "onnxruntime-cuda": "CUDAExecutionProvider",
    "onnxruntime-tensorrt": "TensorrtExecutionProvider",
}
MAX_BATCH = 8
"""Pictures in one run: what the canvas hands over at once. TensorRT builds for no more."""

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
# Exact convolutions whatever their speed: the search by trial takes a minute a shape.
_CUDA = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}


def why_not(name: str) -> str:
    """Why this engine cannot run here; empty when its provider starts.

    >>> why_not("onnxruntime-cuda") != "" or "a GPU is here"
    True
    """
    from anoco_edge.scoring.onnx_scorer import scoring_model

    known = _known(name)
    try:
        open_gpu_session(scoring_model(), "a small graph", [(PROVIDERS[known], {})])
    except AnocoError as error:
        return str(error)
    return ""


class OnnxRuntimeGpuEngine:
    """The backbone in a session whose input and output stay on the GPU."""

    max_batch = MAX_BATCH

    def __init__(self, name: str, bundle: Bundle, settings: EngineSettings) -> None:
        # The GPU has neither threads nor an arena of ours, so nothing of `settings` applies.
        self.name: str = _known(name)
        contract = bundle.manifest.input
        self._shape = (contract.height, contract.width, 3)
        self._patches = (contract.rows * contract.cols, contract.dim)
        self._lock = threading.Lock()  # the buffers serve one batch at a time
        self._session, version = open_gpu_session(
            bundle.graph(),
            str(bundle.path / "backbone.onnx"),
            _providers(_known(name), bundle),
        )
        self._type = np.dtype(_TYPES[self._session.get_outputs()[0].type])
        self._buffers: dict[int, _Buffers] = {}
        # What a self-test result is valid for: another version or GPU may compute otherwise.
        self.fingerprint = "|".join((self.name, version, *_gpu()))

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Patch features of a batch of prepared pictures; a large one is run in pieces."""
        found = np.empty((len(pixels), *self._patches), np.float32)
        for start in range(0, len(pixels), MAX_BATCH):
            batch = slice(start, start + MAX_BATCH)
            with self._lock:
                found[batch] = self._run(pixels[batch]).features.numpy()
        return found

    @contextlib.contextmanager
    def on_device(self, pixels: NDArray[np.uint8]) -> Iterator[DeviceArray]:
        """The same of at most `max_batch` pictures, where the GPU left them; only inside `with`."""
        with self._lock:
            value = self._run(pixels).features
            yield DeviceArray(
                value.data_ptr(), (len(pixels), *self._patches), self._type, owner=value
            )

    def _run(self, pixels: NDArray[np.uint8]) -> _Buffers:
        if pixels.shape[1:] != self._shape or pixels.dtype != np.uint8:
            raise UsageError(
                f"pixels are {pixels.dtype} of shape {pixels.shape}, "
                f"the backbone takes uint8 of shape (batch, {', '.join(map(str, self._shape))})"
            )
        count = len(pixels)
        try:
            if count not in self._buffers:  # once a batch size, so that a run allocates nothing
                self._buffers[count] = self._bind(count)
            buffers = self._buffers[count]
            buffers.pixels.update_inplace(np.ascontiguousarray(pixels))
            self._session.run_with_iobinding(buffers.binding)  # waits until it is done
        except Exception as error:  # noqa: BLE001 (the binding's exceptions have no public base)
            raise EngineError(
                f"{self.name} failed on a batch of {count}: {error}",
                hint="if the GPU's memory is full stop what else uses it; see anoco-edge doctor",
            ) from None
        return buffers

    def _bind(self, count: int) -> _Buffers:
        import onnxruntime

        def on_gpu(shape: tuple[int, ...], dtype: Any) -> Any:
            return onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype, "cuda", 0)

        pixels = on_gpu((count, *self._shape), np.uint8)
        features = on_gpu((count, *self._patches), self._type.type)
        binding = self._session.io_binding()
        binding.bind_ortvalue_input("pixels", pixels)
        binding.bind_ortvalue_output("features", features)
        return _Buffers(pixels, features, binding)


@dataclass(frozen=True)
class _Buffers:
    """ONNX Runtime's values on the GPU for one batch size, and what binds them."""

    pixels: Any
    features: Any
    binding: Any


def _known(name: str) -> Name:
    for known in NAMES:
        if name == known:
            return known
    raise UsageError(f"unknown engine {name!r}", hint=f"use {' or '.join(NAMES)}")


def _gpu() -> tuple[str, ...]:
    """The GPU and its driver, as far as they can be asked."""
    from anoco_edge.plans.device import current_device

    try:
        device = current_device()
    except AnocoError:  # ONNX Runtime needs no cuda-python; then the version alone must do
        return ("a GPU",)
    return (device.name, device.capability, device.driver)


def _providers(name: Name, bundle: Bundle) -> list[tuple[str, dict[str, str]]]:
    cuda = (PROVIDERS["onnxruntime-cuda"], dict(_CUDA))
    if name == "onnxruntime-cuda":
        return [cuda]
    # It has no option for TF32; this variable is NVIDIA's own, read when its libraries load.
    os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")
    return [(PROVIDERS[name], tensorrt_options(bundle)), cuda]  # what the one leaves, the other has


def tensorrt_options(bundle: Bundle) -> dict[str, str]:
    """How the TensorRT provider builds: once, for up to MAX_BATCH pictures, into our cache.

    Its engines are executable code, so the folder must be the user's alone.
    """
    contract = bundle.manifest.input
    digest = sha256_bytes(bundle.graph_identity().encode())[:16]
    folder = str(private_folder(f"onnxruntime-{digest}"))

    def shape(batch: int) -> str:
        return f"pixels:{batch}x{contract.height}x{contract.width}x3"

    precision = bundle.manifest.backbone.precision
    return {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": folder,
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": folder,
        "trt_profile_min_shapes": shape(1),
        "trt_profile_opt_shapes": shape(1),
        "trt_profile_max_shapes": shape(MAX_BATCH),
        # Allowed, not asked for: a graph in half precision cannot be built without.
        "trt_fp16_enable": "0" if precision == "fp32" else "1",
        "trt_int8_enable": "1" if precision == "int8" else "0",
        "trt_layer_norm_fp32_fallback": "1",
    }
