"""Pictures on which scoring takes longest: the wrong part, and no part at all.

A patch that resembles no reference may have every reference as its neighbor, and such pictures are
full of these patches. They come when something goes wrong on a line, so their time matters.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from anoco_edge.detector import Detector
from anoco_edge.diagnostics.bench.statistics import LatencySummary, summarize

Pixels = NDArray[np.uint8]
_BLOCK = 24  # pixels; no multiple of a patch, so that patches see the edges between blocks


class HardPicture(BaseModel):
    """How long frames of one such picture take, in milliseconds; `ratio` is score to threshold."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    picture: str
    scoring: LatencySummary
    total: LatencySummary
    ratio: float | None = None


def wrong_part(good: Pixels) -> Pixels:
    """Return a picture of the same size whose texture and colors no reference has.

    >>> wrong_part(np.zeros((50, 60, 3), np.uint8)).shape
    (50, 60, 3)
    """
    negative = 255 - good[::-1, ::-1]
    height, width = good.shape[:2]
    rows, cols = height // _BLOCK, width // _BLOCK
    order = np.random.default_rng(0).permutation(rows * cols)
    mixed = negative.copy()
    for place, source in enumerate(order):
        (y, x), (v, u) = (divmod(k * _BLOCK, cols * _BLOCK) for k in (place, int(source)))
        y, v = y * _BLOCK, v * _BLOCK
        mixed[y : y + _BLOCK, x : x + _BLOCK] = negative[v : v + _BLOCK, u : u + _BLOCK]
    return mixed


def no_part(good: Pixels) -> Pixels:
    """Return an even picture of the same size and mean color: an empty belt.

    >>> np.unique(no_part(np.full((8, 8, 3), 9, np.uint8)))
    array([9], dtype=uint8)
    """
    even: Pixels = np.broadcast_to(good.mean(axis=(0, 1)).round(), good.shape).astype(np.uint8)
    return even


def time_hard_pictures(
    detector: Detector, good: Pixels, frames: int, step: Callable[[], None]
) -> tuple[HardPicture, ...]:
    """Inspect each of the two pictures `frames` times."""
    found = []
    for name, rgb in (("the wrong part", wrong_part(good)), ("no part", no_part(good))):
        detector.inspect(rgb)
        results = []
        for _ in range(frames):
            results.append(detector.inspect(rgb))
            step()
        found.append(
            HardPicture(
                picture=name,
                scoring=summarize([result.timings["scoring"] for result in results]),
                total=summarize([result.timings["total"] for result in results]),
                ratio=results[-1].ratio,
            )
        )
    return tuple(found)
