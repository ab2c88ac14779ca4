"""anoco-edge: few-shot visual inspection for the production line.

Importing this package loads nothing heavy; the names below are resolved on first use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from anoco_edge import _moved

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle as Bundle
    from anoco_edge.detector import Detector as Detector
    from anoco_edge.errors import AnocoError as AnocoError

__version__ = "0.1.0"
__all__ = ["AnocoError", "Bundle", "Detector", "__version__"]

_HOMES = {
    "Bundle": "anoco_edge.bundle",
    "Detector": "anoco_edge.detector",
    "AnocoError": "anoco_edge.errors",
}

# ONNX Runtime 1.29 and later report models and machine to their maker unless this says otherwise,
# and read it once, when they are imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_moved.install()  # old import paths keep working, with a warning


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'anoco_edge' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
