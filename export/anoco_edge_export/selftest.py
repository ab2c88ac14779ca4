"""The self-test file of a bundle: one picture, and the features and energies it must give."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anoco_edge_export.lazy_import import lazy_import


def selftest_file(pixels: NDArray[np.uint8], features: NDArray[np.float32]) -> bytes:
    """Return selftest.safetensors: `pixels` [1, H, W, 3], torch's `features` [N, d], `energies`.

    A device computes the same energies again when it runs the self-test.
    """
    from anoco_edge.engines.selftest import selftest_energies

    tensors = {
        "pixels": np.ascontiguousarray(pixels[None]),
        "features": np.ascontiguousarray(features),
        "energies": np.asarray(selftest_energies(features), dtype=np.float32),
    }
    content: bytes = lazy_import("safetensors.numpy").save(tensors)
    return content
