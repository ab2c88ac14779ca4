"""The energy that good parts usually have at each place, for parts that lie in a fixed place.

An edge that looks different in every picture has energy on every good part. Subtracting the usual
energy of the place leaves what is unusual there: only the excess over mean + sigmas x spread
counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle.tensors import read_tensors
from anoco_edge.errors import BundleError, ScoringError, UsageError

Map = NDArray[np.float32]

LEAST_PICTURES = 2  # a spread needs two, and is only rough up to about ten


@dataclass(frozen=True)
class BaselineGrid:
    """The mean and the spread of the energy of good parts, for every patch of the grid."""

    mean: NDArray[np.float32]
    spread: NDArray[np.float32]
    sigmas: float

    @staticmethod
    def fit(grids: Iterable[Map], sigmas: float) -> BaselineGrid:
        """Compute the mean and the sample standard deviation of the energies of good parts.

        >>> grids = [np.full((1, 1), v, np.float32) for v in (1.0, 3.0)]
        >>> found = BaselineGrid.fit(grids, 3.0)
        >>> found.mean.item(), round(found.spread.item(), 4)
        (2.0, 1.4142)
        """
        stack = np.stack([np.asarray(grid, np.float64) for grid in grids])
        if len(stack) < LEAST_PICTURES:
            raise UsageError(
                f"a baseline needs {LEAST_PICTURES} pictures, there are {len(stack)}",
                hint="calibrate with more good parts, or without a baseline (`sigmas`)",
            )
        mean, spread = stack.mean(axis=0), stack.std(axis=0, ddof=1)
        if not _usable(mean, spread, sigmas):
            raise ScoringError(
                f"a baseline of {sigmas:g} sigmas over these energies is not finite",
                hint="calibrate with fewer sigmas (`sigmas`)",
            )
        return BaselineGrid(mean.astype(np.float32), spread.astype(np.float32), sigmas)

    def excess(self, energy: Map) -> Map:
        """Subtract the usual energy from a grid of energies; what would be negative becomes 0.

        >>> one = np.ones((1, 2), np.float32)
        >>> BaselineGrid(one, one, 3.0).excess(np.array([[3.0, 9.0]], np.float32)).tolist()
        [[0.0, 5.0]]
        """
        if energy.shape != self.mean.shape:
            raise BundleError(
                f"the baseline has {self.mean.shape} patches, the picture {energy.shape}",
                hint="calibrate again",
            )
        left: Map = np.maximum(energy - self._upper_limit, np.float32(0))
        return left

    @cached_property
    def _upper_limit(self) -> Map:
        return self.mean + np.float32(self.sigmas) * self.spread

    def to_bytes(self) -> bytes:
        """The baseline as the bytes of a safetensors file."""
        from safetensors.numpy import save

        data: bytes = save({"mean": self.mean, "spread": self.spread})
        return data

    @staticmethod
    def from_bytes(data: bytes, sigmas: float, shape: tuple[int, int], name: str) -> BaselineGrid:
        """Read a baseline from the bytes of a safetensors file; `name` is its name in errors.

        A baseline that could lead to a wrong score is refused.
        """
        tensors = read_tensors(data, f"{name} is not a baseline")
        good = set(tensors) == {"mean", "spread"} and all(
            t.dtype == np.float32 and t.shape == shape and np.isfinite(t).all() and (t >= 0).all()
            for t in tensors.values()
        )
        if not good or not _usable(tensors["mean"], tensors["spread"], sigmas):
            raise BundleError(f"{name} does not fit the product", hint="calibrate again")
        return BaselineGrid(tensors["mean"], tensors["spread"], sigmas)


def _usable(mean: NDArray[np.floating], spread: NDArray[np.floating], sigmas: float) -> bool:
    """Whether the usual energy is a finite float32 number everywhere. Nothing exceeds infinity, so
    a defect at such a place would go unnoticed."""
    with np.errstate(over="ignore"):
        usual = mean.astype(np.float64) + sigmas * spread.astype(np.float64)
    return bool((usual <= np.finfo(np.float32).max).all())
