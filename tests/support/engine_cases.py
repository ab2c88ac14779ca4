"""Makes inputs for the tiny backbone and a TensorRT engine of it, for tests of engines."""

from __future__ import annotations

from typing import Any

import numpy as np
from tiny_bundle import textured_picture

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings
from anoco_edge.engines.tensorrt import TensorRtEngine


def input_batch(count: int) -> Any:
    """Return `count` pictures of good parts at the size of the tiny backbone's input."""
    return np.stack([textured_picture(k, 64, 64) for k in range(count)])


ONE_INPUT = textured_picture(3, 64, 64)[None]
"""A batch of one picture."""


def open_tensorrt(bundle: Bundle, module: Any = "tensorrt") -> TensorRtEngine:
    """Open the engine on TensorRT or, with "tensorrt-rtx", on TensorRT-RTX."""
    return TensorRtEngine(module, bundle, EngineSettings())
