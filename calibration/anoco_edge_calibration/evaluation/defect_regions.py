"""The defective regions of a picture, as horizontal runs of its mask.

PRO needs of each defective pixel the size of its region. Runs are small enough to be kept for all
pictures of a category, so that a mask is read and labelled once for all scorers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from anoco_edge.images.preprocess import Mask

Indices = NDArray[np.int64]
_Value = TypeVar("_Value", bound=np.generic)

_LONG = 16  # pixels of a run in the mean, from which copying run by run is faster than by places


@dataclass(frozen=True, eq=False)
class DefectRegions:
    """The 8-connected regions of a mask."""

    shape: tuple[int, ...]
    """Rows and columns of the picture."""
    starts: Indices
    """Where each run begins, counted through the rows of the picture."""
    lengths: Indices
    numbers: Indices
    """The number of each run's region, from 0 in the order of their first pixels."""

    @classmethod
    def from_mask(cls, mask: Mask) -> DefectRegions:
        """Find the regions of a mask.

        >>> regions = DefectRegions.from_mask(np.array([[1, 0, 0, 1], [0, 1, 0, 1]], np.bool_))
        >>> regions.count, regions.pixels.tolist(), regions.sizes.tolist()
        (2, [0, 3, 5, 7], [2, 2, 2, 2])
        """
        rows = np.flatnonzero(mask.any(axis=1))
        if not rows.size:
            none = np.zeros(0, np.int64)
            return cls(mask.shape, none, none, none)
        top, height, width = int(rows[0]), int(rows[-1] - rows[0]) + 1, mask.shape[1]
        # Runs are places in the concatenated rows. The empty columns on either side keep runs of
        # different rows apart, also those that touch at a corner.
        wide = width + 2
        padded = np.zeros((height, wide), np.bool_)
        padded[:, 1:-1] = mask[top : top + height]
        flat = padded.ravel()
        changes = np.flatnonzero(flat[1:] != flat[:-1])
        starts, ends = changes[::2], changes[1::2]
        # A run touches those of the row above that begin at most one column after its end, and
        # that end at most one column before its begin.
        low = np.searchsorted(ends, starts - wide)
        touching = np.searchsorted(starts, ends - wide, side="right") - low
        here = np.repeat(np.arange(starts.size), touching)
        above = np.arange(here.size) - np.repeat(np.cumsum(touching) - touching - low, touching)
        _, numbers = np.unique(_join(starts.size, here, above), return_inverse=True)
        row, column = np.divmod(starts, wide)
        return cls(mask.shape, (top + row) * width + column, ends - starts, numbers)

    @property
    def count(self) -> int:
        """The number of regions."""
        return int(self.numbers.max()) + 1 if self.numbers.size else 0

    @property
    def pixels(self) -> Indices:
        """The place of each defective pixel, counted through the rows of the picture."""
        before = np.cumsum(self.lengths) - self.lengths
        return np.repeat(self.starts - before, self.lengths) + np.arange(self.lengths.sum())

    def of(self, flat: NDArray[_Value]) -> NDArray[_Value]:
        """Return the values of the defective pixels; the rows of a picture lie in one line.

        >>> regions = DefectRegions.from_mask(np.array([[1, 0, 1], [0, 1, 0]], np.bool_))
        >>> regions.of(np.arange(6) * 10).tolist()
        [0, 20, 40]
        """
        if self.lengths.sum() < _LONG * self.lengths.size or not self.lengths.size:
            return flat[self.pixels]
        runs = zip(self.starts.tolist(), self._ends, strict=True)
        return np.concatenate([flat[start:end] for start, end in runs])

    @property
    def sizes(self) -> NDArray[np.uint64]:
        """For each defective pixel the number of pixels of its region."""
        return np.repeat(self._run_sizes, self.lengths)

    @cached_property
    def _ends(self) -> list[int]:
        ends: list[int] = (self.starts + self.lengths).tolist()
        return ends

    @cached_property
    def _run_sizes(self) -> NDArray[np.uint64]:
        sizes = np.bincount(self.numbers, weights=self.lengths).astype(np.uint64)
        return sizes[self.numbers]


def label_regions(mask: Mask) -> Indices:
    """Number the 8-connected regions of the mask from 1 by their first pixel; 0 is outside.

    >>> label_regions(np.array([[1, 0, 0, 1], [0, 1, 0, 1]], np.bool_)).tolist()
    [[1, 0, 0, 2], [0, 1, 0, 2]]
    """
    regions = DefectRegions.from_mask(mask)
    labels = np.zeros(mask.shape, np.int64)
    labels.ravel()[regions.pixels] = np.repeat(regions.numbers + 1, regions.lengths)
    return labels


def _join(count: int, here: Indices, above: Indices) -> Indices:
    """Join all pairs (here, above) into sets, and return the lowest member of each member's set."""
    root = np.arange(count)
    while True:
        one, other = root[here], root[above]
        if (one == other).all():
            return root
        np.minimum.at(root, np.maximum(one, other), np.minimum(one, other))
        while (root != root[root]).any():
            root = root[root]
