"""Turns patch energies into the score of a picture."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.scoring.types import Floats

Pooling: TypeAlias = Literal["max", "top5", "smooth"]
POOLINGS: tuple[str, ...] = get_args(Pooling)

# The Gaussian of `smooth`, relative to its center. On the patch grid it removes single raised
# patches of good parts, which decide a maximum; a defect raises its neighbors too.
SMOOTH_SIGMA = 0.8
_SIDE = math.exp(-1 / (2 * SMOOTH_SIGMA**2))
SMOOTH_WEIGHTS = ((_SIDE**2, _SIDE, _SIDE**2), (_SIDE, 1.0, _SIDE), (_SIDE**2, _SIDE, _SIDE**2))


def pool(energy: Floats, pooling: str = "max", scored: NDArray[np.bool_] | None = None) -> float:
    """Pool the energies of a picture's patches into its score.

    `max` takes the largest, as the paper does, `top5` the mean of the five largest, and `smooth`
    the largest of the grid after a 3x3 Gaussian. Only patches in `scored` count; None counts all.
    `smooth` needs the grid of the patches, the others take any shape.

    >>> grid = np.array([[1.0, 5.0, 3.0]])
    >>> pool(grid), pool(grid, "top5"), round(pool(grid, "smooth"), 3)
    (5.0, 3.0, 3.628)
    """
    if pooling not in POOLINGS:
        raise UsageError(f"unknown pooling {pooling!r}", hint=f"use one of {', '.join(POOLINGS)}")
    scored = np.ones(energy.shape, np.bool_) if scored is None else scored
    if not scored.any():
        raise ScoringError(
            "no patch is left to score", hint="widen the region of interest or the mask"
        )
    values = threshold_grid(energy, scored, pooling)[scored]
    if pooling == "top5":
        count = min(5, values.size)
        return float(np.partition(values, -count)[-count:].mean(dtype=np.float64))
    return float(values.max())


def threshold_grid(energy: Floats, scored: NDArray[np.bool_], pooling: str) -> Floats:
    """Return the energies that are compared with a threshold, patch by patch.

    They are the energies themselves, or with `smooth` their smoothed grid. Where the score exceeds
    a threshold, so does at least one of them, and a region grows from there.
    """
    return smooth_grid(energy, scored) if pooling == "smooth" else energy


def smooth_grid(energy: Floats, scored: NDArray[np.bool_]) -> Floats:
    """Smooth a grid of energies with a 3x3 Gaussian, over the scored patches alone.

    The weights of the scored patches of each neighborhood are scaled to a sum of one; patches that
    are not scored become 0. The nine terms are added row by row in float64, as the native library
    adds them, and the result is rounded to the type of `energy`.

    >>> corner = np.array([[9.0, 0.0], [0.0, 0.0]])
    >>> smooth_grid(corner, np.array([[True, False], [False, True]])).round(3).tolist()
    [[7.44, 0.0], [0.0, 1.56]]
    """
    if energy.ndim != 2 or scored.shape != energy.shape:
        raise UsageError(
            f"energies of shape {energy.shape} with a mask of shape {scored.shape} are no grid",
            hint="pass rows x columns of patches, and a mask of the same shape",
        )
    total = smooth_sums(np.where(scored, energy, 0))
    smooth = np.divide(total, smooth_sums(scored), out=np.zeros_like(total), where=scored)
    return smooth.astype(energy.dtype)


def smooth_sums(grid: NDArray[Any]) -> NDArray[np.float64]:
    """Return for each patch the sum of its neighborhood by SMOOTH_WEIGHTS; outside lie zeros."""
    rows, cols = grid.shape
    padded = np.pad(grid.astype(np.float64), 1)
    total = np.zeros((rows, cols))
    for down, line in enumerate(SMOOTH_WEIGHTS):
        for across, weight in enumerate(line):
            total += weight * padded[down : down + rows, across : across + cols]
    return total
