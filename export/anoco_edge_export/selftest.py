"""One picture with the features and energies it must give, so that a device can check itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anoco_edge_export.lazy_import import load


def selftest_file(pixels: NDArray[np.uint8], features: NDArray[np.float32]) -> bytes:
    """selftest.safetensors: `pixels` [1, H, W, 3], torch's `features` [N, d], their `energies`.

    Energies are those of the odd patches against the even ones, by the float64 reference.
    """
    from anoco_edge.scoring import score_patches

    energy = score_patches(features[1::2], features[0::2], scorer="reference").energy
    tensors = {
        "pixels": np.ascontiguousarray(pixels[None]),
        "features": np.ascontiguousarray(features),
        "energies": np.asarray(energy, dtype=np.float32),
    }
    content: bytes = load("safetensors.numpy").save(tensors)
    return content
