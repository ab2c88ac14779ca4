"""A graph of one addition, which shows whether an engine starts and computes at all.

The scoring graph would also work, but it belongs to another layer and takes longer to build. The
question is only whether a library loads, finds its device and adds two numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import EnvironmentMissingError

PROBE_GRAPH = bytes.fromhex(
    "080a3a390a0e0a01780a01781201792203416464120570726f62655a0f0a0178120a0a08080112040a020802"
    "620f0a0179120a0a08080112040a02080242040a001012"
)
"""ONNX, IR version 10 and opset 18: y = x + x, both float32 of shape [2]."""

_INPUT = (1.5, -2.0)


def probe_input() -> dict[str, NDArray[np.float32]]:
    """Return the input of the probe graph.

    >>> probe_input()["x"].tolist()
    [1.5, -2.0]
    """
    return {"x": np.array(_INPUT, np.float32)}


def check_probe(library: str, output: NDArray[np.float32]) -> None:
    """Raise unless a library computed the sum of the probe graph correctly.

    >>> check_probe("a library", np.array([3.0, -4.0], np.float32))
    """
    if output.tolist() != [2 * value for value in _INPUT]:
        raise EnvironmentMissingError(
            f"{library} computes nonsense here", hint="install another version of it"
        )
