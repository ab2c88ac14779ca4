"""ONNX Runtime on the CPU."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings
from anoco_edge.errors import BundleError, missing


class OnnxRuntimeEngine:
    """The backbone in an ONNX Runtime session."""

    name = "onnxruntime"

    def __init__(self, bundle: Bundle, settings: EngineSettings) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise missing("onnxruntime", "cpu", "to run the backbone") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings.threads
        options.enable_cpu_mem_arena = settings.arena
        options.log_severity_level = 3
        record = bundle.file("backbone.onnx")
        model = bundle.read(record)
        try:
            self._session: Any = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001 (the binding's exceptions have no public base)
            raise BundleError(
                f"ONNX Runtime {onnxruntime.__version__} cannot load "
                f"{bundle.path / record.path}: {error}"
            ) from None
        providers = self._session.get_providers()
        # What a self-test result is valid for: another version or processor may compute otherwise.
        self.fingerprint = "|".join(
            (self.name, onnxruntime.__version__, *providers, platform.machine(), _processor())
        )
        contract = bundle.manifest.input
        self._shape = (contract.rows * contract.cols, contract.dim)

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Patch features of a batch of prepared pictures."""
        (features,) = self._session.run(["features"], {"pixels": pixels})
        if features.shape[1:] != self._shape:
            raise BundleError(
                f"backbone.onnx gives features of shape {features.shape[1:]}, "
                f"the manifest says {self._shape}"
            )
        result: NDArray[np.float32] = features
        return result


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
