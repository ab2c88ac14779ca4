"""Do neighbours look alike? Then one part was pictured several times in a row, and its pictures
must count as one part."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 32
FEWEST = 4
MOST_COMPARED = 256  # pictures that are compared with each other; their pairs are enough to tell
# Neighbours are alike when they differ by less than this share of what strangers differ. Sensor
# noise alone gave 0.02 to 0.15 on rendered parts; independent neighbours, rendered or real (five
# categories), 0.38 and more.
ALIKE = 0.25


class Alike:
    """Looks at pictures one by one, in their order, and keeps only a thumbnail of each.

    One burst that is the whole set cannot be told from parts that are all the same.

    >>> rng, seen = np.random.default_rng(0), Alike()
    >>> for part in range(4):
    ...     rgb = rng.integers(0, 255, (48, 64, 3), dtype=np.uint8)
    ...     for frame in range(3):
    ...         seen.add(f"{part}-{frame}.png", rgb)
    >>> print(seen.verdict())
    8 of 11 neighbouring pictures look alike (for example 0-0.png and 0-1.png), as if one part was \
taken several times: give the pictures of one part the same --group
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._thumbnails: list[NDArray[np.float64]] = []

    def add(self, name: str, rgb: NDArray[np.uint8]) -> None:
        """The next picture."""
        small = Image.fromarray(rgb).resize((SIDE, SIDE), Image.Resampling.BOX)
        # The mean of three channels keeps fractions of a grey level, which 8-bit grey would not.
        self._thumbnails.append(np.asarray(small, dtype=np.float64).mean(axis=2).reshape(-1))
        self._names.append(name)

    def verdict(self) -> str | None:
        """One line of warning, or None if neighbours differ like any others."""
        if len(self._names) < FEWEST:
            return None
        grey = np.array(self._thumbnails)
        steps = np.sqrt(np.square(np.diff(grey, axis=0)).mean(axis=1))
        at, apart = _all_to_all(grey)
        first, second = np.triu_indices(len(at), k=1)
        strangers = at[second] - at[first] > 1
        typical = float(np.quantile(apart[first, second][strangers], 0.75))
        close = steps <= ALIKE * typical
        # Pairs within a burst say nothing about chance: count only across bursts.
        burst = np.concatenate([[0], np.cumsum(~close)])[at]
        across = apart[first, second][strangers & (burst[first] != burst[second])]
        chance = float((across <= ALIKE * typical).mean()) if len(across) else 0.0
        by_chance = chance * len(steps)
        count = int(close.sum())
        if count < 2 + by_chance + 3 * math.sqrt(by_chance):
            return None
        example = int(np.flatnonzero(close)[0])
        return (
            f"{count} of {len(steps)} neighbouring pictures look alike (for example "
            f"{self._names[example]} and {self._names[example + 1]}), as if one part was taken "
            "several times: give the pictures of one part the same --group"
        )


def _all_to_all(grey: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Which pictures were compared (all, or a seeded choice), and how much any two differ."""
    n = len(grey)
    at = np.arange(n)
    if n > MOST_COMPARED:
        at = np.sort(np.random.default_rng(0).choice(n, MOST_COMPARED, replace=False))
    chosen = grey[at]
    square = np.square(chosen).mean(axis=1)
    apart = square[:, None] + square - 2 * (chosen @ chosen.T) / chosen.shape[1]
    return at, np.sqrt(np.maximum(apart, 0))
