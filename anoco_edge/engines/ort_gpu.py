"""ONNX Runtime on an NVIDIA GPU, through its CUDA or its TensorRT provider.

Neither has run on a GPU yet, because no machine that built them had one. The tests run them with
ONNX Runtime's CPU provider in the place of theirs. After a session is made,
`session.get_providers()` says what really runs: a provider that does not start is an error, never a
quiet run on the processor.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.engines.base import EngineSettings
from anoco_edge.engines.probe_graph import PROBE_GRAPH
from anoco_edge.errors import AnocoError, EngineError, EnvironmentMissingError, UsageError
from anoco_edge.plans.cache import private_folder
from anoco_edge.scoring.device_array import DeviceArray
from anoco_edge.scoring.onnx_session import load_onnxruntime, open_gpu_session
from anoco_edge.storage.hashes import sha256_bytes

Name = Literal["onnxruntime-cuda", "onnxruntime-tensorrt"]
NAMES: tuple[Name, ...] = get_args(Name)
PROVIDERS: dict[Name, str] = {
    "onnxruntime-cuda": "CUDAExecutionProvider",
    "onnxruntime-tensorrt": "TensorrtExecutionProvider",
}
MAX_BATCH = 8
"""Pictures in one run, as many as tiling passes on at once. TensorRT builds for no more."""

_TYPED_SINCE = (1, 20)
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
# Exact convolutions. The exhaustive search for the fastest takes a minute for each shape.
_CUDA = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}


def open_engine(name: str, bundle: Bundle, settings: EngineSettings) -> OnnxRuntimeGpuEngine:
    """Load the bundle's backbone."""
    return OnnxRuntimeGpuEngine(name, bundle, settings)


def try_out(name: str) -> str:
    """Start the provider with a small graph; raises what keeps it from starting."""
    if reason := why_not(name):
        raise EnvironmentMissingError(reason)
    return "starts"


def why_not(name: str, bundle: Bundle | None = None) -> str:
    """Say why this engine cannot run here; empty when its provider starts.

    >>> why_not("onnxruntime-cuda") != "" or "a GPU is here"
    True
    """
    known = _known(name)
    if bundle is not None and (reason := _weakly_typed(known, bundle)):
        return reason
    if bundle is not None and bundle.manifest.input.pixels != "uint8":
        return "this backbone takes float32 pixels, for DeepStream: use tensorrt or onnxruntime"
    try:
        open_gpu_session(PROBE_GRAPH, "a graph of one addition", [(PROVIDERS[known], {})])
    except AnocoError as error:
        return str(error)
    return ""


class OnnxRuntimeGpuEngine:
    """The backbone in a session whose input and output stay on the GPU."""

    max_batch = MAX_BATCH

    def __init__(self, name: str, bundle: Bundle, settings: EngineSettings) -> None:
        # Threads and arena are the processor's, so nothing of `settings` applies.
        self.name: str = _known(name)
        if reason := _weakly_typed(_known(name), bundle):
            raise EnvironmentMissingError(reason, hint="use `engine='tensorrt'`, or update it")
        contract = bundle.manifest.input
        self._shape = (contract.height, contract.width, 3)
        self._patches = (contract.rows * contract.cols, contract.dim)
        self._lock = threading.Lock()  # the buffers hold one batch at a time
        self._session, version = open_gpu_session(
            bundle.graph(),
            str(bundle.path / "backbone.onnx"),
            _providers(_known(name), bundle),
        )
        self._type = np.dtype(_TYPES[self._session.get_outputs()[0].type])
        self._buffers: dict[int, _Buffers] = {}
        # A self-test that passed is remembered for this version and GPU alone.
        self.fingerprint = "|".join((self.name, version, *_gpu()))

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Compute the features of preprocessed pictures; a large batch is run in pieces."""
        found = np.empty((len(pixels), *self._patches), np.float32)
        for start in range(0, len(pixels), MAX_BATCH):
            batch = slice(start, start + MAX_BATCH)
            with self._lock:
                found[batch] = self._run(pixels[batch]).features.numpy()
        return found

    @contextlib.contextmanager
    def on_device(self, pixels: NDArray[np.uint8]) -> Iterator[DeviceArray]:
        """Compute features of at most `max_batch` pictures, which stay on the GPU for a `with`."""
        with self._lock:
            value = self._run(pixels).features
            yield DeviceArray(
                value.data_ptr(), (len(pixels), *self._patches), self._type, owner=value
            )

    def _run(self, pixels: NDArray[np.uint8]) -> _Buffers:
        if pixels.shape[1:] != self._shape or pixels.dtype != np.uint8:
            raise UsageError(
                f"pixels are {pixels.dtype} of shape {pixels.shape}, "
                f"the backbone takes uint8 of shape (batch, {', '.join(map(str, self._shape))})",
                hint="preprocess pictures to the input of the bundle first",
            )
        count = len(pixels)
        try:
            if (
                count not in self._buffers
            ):  # once for each batch size, so that a run allocates nothing
                self._buffers[count] = self._bind(count)
            buffers = self._buffers[count]
            buffers.pixels.update_inplace(np.ascontiguousarray(pixels))
            self._session.run_with_iobinding(buffers.binding)  # returns when it is done
        except Exception as error:  # noqa: BLE001 (the binding's exceptions have no public base)
            raise EngineError(
                f"{self.name} failed on a batch of {count}: {error}",
                hint="if the GPU's memory is full, stop what else uses it; see anoco-edge doctor",
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
    """ONNX Runtime's values on the GPU for one batch size, and the binding of both."""

    pixels: Any
    features: Any
    binding: Any


def _known(name: str) -> Name:
    for known in NAMES:
        if name == known:
            return known
    raise UsageError(f"unknown engine {name!r}", hint=f"use {' or '.join(NAMES)}")


def _is_strongly_typed() -> bool:
    """Whether the TensorRT provider keeps the types of a graph when no precision is allowed to it.

    In the sources of ONNX Runtime it does with TensorRT 10, which the packages since 1.20 are built
    with. This did not run on a GPU; the self-test decides there.
    """
    version = load_onnxruntime().__version__.split(".")
    return tuple(int(part) for part in version[:2]) >= _TYPED_SINCE


def _weakly_typed(name: Name, bundle: Bundle) -> str:
    """Say why this provider would compute a transformer in other types than its graph has.

    TensorRT that may choose types drops the FP32 of softmax and norms, and computes nonsense.
    """
    backbone = bundle.manifest.backbone
    if name != "onnxruntime-tensorrt" or backbone.precision == "fp32" or _is_strongly_typed():
        return ""
    if "vit" not in backbone.architecture.lower():
        return ""
    return (
        f"{name} of this onnxruntime chooses its own types for {backbone.id} in "
        f"{backbone.precision}: that takes onnxruntime {'.'.join(map(str, _TYPED_SINCE))} or newer"
    )


def _gpu() -> tuple[str, ...]:
    """Name the GPU and its driver, as far as they can be found out."""
    from anoco_edge.plans.device import current_device

    try:
        device = current_device()
    except AnocoError:  # the driver that ONNX Runtime uses may have another name
        return ("a GPU",)
    return (device.name, device.capability, device.driver)


def _providers(name: Name, bundle: Bundle) -> list[tuple[str, dict[str, str]]]:
    cuda = (PROVIDERS["onnxruntime-cuda"], dict(_CUDA))
    if name == "onnxruntime-cuda":
        return [cuda]
    # The provider has no option for TF32. NVIDIA's libraries read this variable when they load.
    os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")
    return [(PROVIDERS[name], tensorrt_options(bundle)), cuda]  # CUDA runs what TensorRT cannot


def tensorrt_options(bundle: Bundle) -> dict[str, str]:
    """Options that let the TensorRT provider build once, for up to MAX_BATCH pictures.

    What it builds goes into our cache. It is executable code, so the folder must be the user's
    alone.
    """
    contract = bundle.manifest.input
    digest = sha256_bytes(bundle.graph_identity().encode())[:16]
    folder = str(private_folder(f"onnxruntime-{digest}"))

    def shape(batch: int) -> str:
        return f"pixels:{batch}x{contract.height}x{contract.width}x3"

    precision = bundle.manifest.backbone.precision
    chooses = precision != "fp32" and not _is_strongly_typed()
    return {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": folder,
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": folder,
        "trt_profile_min_shapes": shape(1),
        "trt_profile_opt_shapes": shape(1),
        "trt_profile_max_shapes": shape(MAX_BATCH),
        # With neither, newer versions keep the types of the graph. Older ones compute a graph in
        # FP16 only if that is allowed, and then choose types themselves.
        "trt_fp16_enable": "1" if chooses else "0",
        "trt_int8_enable": "1" if chooses and precision == "int8" else "0",
        "trt_layer_norm_fp32_fallback": "1",
    }
