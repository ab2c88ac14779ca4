"""Synthetic pictures: the self-test uses one, and parity those that the user did not give."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def synthetic_picture(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """Render a lit, woven, spotted surface with grain: edges, textures and flat areas of all sizes.

    The same seed gives the same picture.

    >>> a, b = synthetic_picture(64, 48), synthetic_picture(64, 48)
    >>> a.shape, a.dtype.name, bool((a == b).all())
    ((48, 64, 3), 'uint8', True)
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    u, v = x / width, y / height
    picture = np.empty((height, width, 3))
    picture[:] = rng.uniform(70, 150, size=3)
    picture += (70 * (u * rng.uniform(-1, 1) + v * rng.uniform(-1, 1)))[..., None]
    for period in (4.0, 9.0, 23.0, 61.0):
        angle = rng.uniform(0, np.pi)
        wave = np.sin(2 * np.pi * (x * np.cos(angle) + y * np.sin(angle)) / period)
        # Each weave fills only one side of the picture, so that patches differ.
        side = 1 / (1 + np.exp(-12 * (u * np.cos(angle) + v * np.sin(angle) - 0.4)))
        picture += (wave * side)[..., None] * rng.uniform(5, 25, size=3)
    for _ in range(12):
        radius = rng.uniform(0.02, 0.12) * min(width, height)
        at_x, at_y = rng.uniform(0, width), rng.uniform(0, height)
        inside = np.hypot(x - at_x, (y - at_y) * rng.uniform(0.6, 1.6)) < radius
        picture[inside] += rng.uniform(-80, 80, size=3)
    picture += rng.normal(0, 3, size=picture.shape)
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)
