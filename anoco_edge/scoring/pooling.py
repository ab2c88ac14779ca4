"""Turns patch energies into the score of a picture."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np

from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.scoring.types import Floats

Pooling: TypeAlias = Literal["max", "top5"]
POOLINGS: tuple[str, ...] = get_args(Pooling)


def pool(energy: Floats, pooling: str = "max") -> float:
    """Take the maximum, as the paper does, or the mean of the five largest, which is less noisy.

    >>> pool(np.array([1.0, 5.0, 3.0])), pool(np.array([1.0, 5.0, 3.0]), "top5")
    (5.0, 3.0)
    """
    if energy.size == 0:
        raise ScoringError(
            "no patch is left to score", hint="widen the region of interest or the mask"
        )
    if pooling == "max":
        return float(energy.max())
    if pooling == "top5":
        count = min(5, energy.size)
        return float(np.partition(energy, -count)[-count:].mean(dtype=np.float64))
    raise UsageError(f"unknown pooling {pooling!r}", hint=f"use one of {', '.join(POOLINGS)}")
