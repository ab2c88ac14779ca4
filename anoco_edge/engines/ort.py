"""ONNX Runtime on the CPU."""

from __future__ import annotations

import platform

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.engines.base import (
    EngineSettings,
    check_features,
    engine_failed,
    graph_precision,
)
from anoco_edge.engines.probe_graph import PROBE_GRAPH, check_probe, probe_input
from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.machine import cpu_model, package_version
from anoco_edge.scoring.onnx_session import load_onnxruntime, open_session

_LARGE = 16_000_000  # bytes; transformers and wide CNNs are above, the small CNNs below


def open_engine(name: str, bundle: Bundle, settings: EngineSettings) -> OnnxRuntimeEngine:
    """Load the bundle's backbone."""
    if reason := why_not(name, bundle):
        raise EnvironmentMissingError(
            reason, hint="use `engine='openvino'`, or build a plan for a GPU: anoco-edge build"
        )
    return OnnxRuntimeEngine(bundle, settings)


def why_not(name: str, bundle: Bundle | None = None) -> str:
    """Say why the bundle cannot run here; empty if nothing is known against it."""
    if bundle is not None and bundle.manifest.backbone.precision == "bf16":
        return "ONNX Runtime has no BF16 arithmetic on a CPU, and this backbone is BF16"
    return ""


def try_out(name: str) -> str:
    """Run a graph of one addition; return what ran, and raise what failed."""
    onnxruntime = load_onnxruntime()
    session = open_session(PROBE_GRAPH, "a graph of one addition")
    (output,) = session.run(["y"], probe_input())
    check_probe("ONNX Runtime", output)
    return f"ONNX Runtime {onnxruntime.__version__} ran a graph on the processor"


class OnnxRuntimeEngine:
    """The backbone in an ONNX Runtime session."""

    name = "onnxruntime"

    def __init__(self, bundle: Bundle, settings: EngineSettings) -> None:
        self._bundle = bundle
        self._session = open_session(
            bundle.graph(),
            str(bundle.path / "backbone.onnx"),
            threads=settings.threads,
            arena=settings.arena,
            spin=sum(file.size for file in bundle.graph_files()) > _LARGE,
        )
        self.cpu_precision = graph_precision(bundle)
        # A self-test that passed is remembered for this version and processor alone.
        providers = self._session.get_providers()
        version = package_version("onnxruntime") or package_version("onnxruntime-gpu") or ""
        parts = (self.name, version, *providers, platform.machine(), cpu_model())
        self.fingerprint = "|".join(filter(None, parts))

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Compute the patch features of a batch of preprocessed pictures."""
        features: NDArray[np.float32]
        given = {"pixels": self._bundle.manifest.input.arranged(pixels)}
        try:
            (features,) = self._session.run(["features"], given)
        except Exception as error:  # noqa: BLE001 (the binding's exceptions have no public base)
            raise engine_failed(self.name, len(pixels), error) from None
        check_features(self._bundle, features, len(pixels))
        return features
