"""ONNX Runtime on the CPU."""

from __future__ import annotations

import platform

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings
from anoco_edge.errors import BundleError
from anoco_edge.machine import cpu_model, package_version
from anoco_edge.onnx_session import open_session


class OnnxRuntimeEngine:
    """The backbone in an ONNX Runtime session."""

    name = "onnxruntime"

    def __init__(self, bundle: Bundle, settings: EngineSettings) -> None:
        record = bundle.file("backbone.onnx")
        self._session = open_session(
            bundle.read(record),
            str(bundle.path / record.path),
            threads=settings.threads,
            arena=settings.arena,
        )
        # What a self-test result is valid for: another version or processor may compute otherwise.
        providers = self._session.get_providers()
        version = package_version("onnxruntime") or package_version("onnxruntime-gpu") or ""
        self.fingerprint = "|".join(
            (self.name, version, *providers, platform.machine(), cpu_model())
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
