"""Counts how many of many values lie between thresholds, without sorting the values.

A sort takes 10 to 80 ns a value, by processor. Here a value is placed by a table: its upper bits
choose a block of patterns, the block has cells in proportion to its thresholds, and the cell knows
how many thresholds lie before it. The value is then compared with the few thresholds of its cell.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint32]
Counts = NDArray[np.int64]

_BLOCK_BITS = 20  # an eighth of an octave of float32
_BLOCKS = 1 << (31 - _BLOCK_BITS)  # the sign is never set
_CELLS = 2  # for each threshold: 4 % of the pixels of real maps need a second comparison
_AT_ONCE = 1 << 16  # values, so that what is computed of them stays in the cache
_WAITING = 1 << 20  # so many places are counted together, since a count takes all thresholds
_STEPS = 8  # comparisons in a crowded cell before its values are searched for


class ThresholdCounter:
    """Counts values between thresholds, and values equal to one.

    Values and thresholds are bit patterns of floats that are not negative, which sort alike.

    >>> counter = ThresholdCounter(np.float32([1.0, 2.0]).view(np.uint32))
    >>> counter.add(np.float32([0.5, 1.0, 1.5, 1.7, 2.0, 3.0, 3.0]).view(np.uint32))
    >>> counter.between().tolist(), counter.equal().tolist()
    ([1, 2, 2], [1, 1])
    """

    def __init__(self, thresholds: Bits) -> None:
        """`thresholds` are distinct, at least one, and ascending."""
        self._lowest = thresholds[0]
        # No value reaches the last one, so that every value has a threshold that is not below it.
        self._thresholds = np.append(thresholds.astype(np.int64), 1 << 32)
        inside = self._thresholds[:-1]
        count = np.bincount(inside >> _BLOCK_BITS, minlength=_BLOCKS)
        width = np.ceil(np.log2(np.maximum(_CELLS * count, 1))).astype(np.int64)
        width = np.minimum(width, _BLOCK_BITS)
        cells = 1 << width
        self._shift = _BLOCK_BITS - width
        # The number of a block's first cell, less what the shift makes of the block's first value.
        shifted = np.arange(_BLOCKS) << _BLOCK_BITS >> self._shift
        self._offset = np.cumsum(cells) - cells - shifted
        per_cell = np.bincount(self._cells(inside), minlength=int(cells.sum()))
        self._before = np.cumsum(per_cell) - per_cell
        self._counted, self._equal = np.zeros((2, self._thresholds.size), np.int64)
        self._waiting: list[Counts] = []
        self._ties: list[Counts] = []

    def add(self, values: Bits) -> None:
        """Count more values."""
        # Most pixels of good surfaces are below the least threshold.
        reaching = values[values >= self._lowest]
        self._counted[0] += values.size - reaching.size
        for start in range(0, reaching.size, _AT_ONCE):
            places, equal = self._place(reaching[start : start + _AT_ONCE].astype(np.int64))
            self._waiting.append(places)
            self._ties.append(places[equal])
        if sum(places.size for places in self._waiting) >= _WAITING:
            self._count()

    def between(self) -> Counts:
        """Return how many values lie below the first threshold, between two, above the last."""
        self._count()
        strictly: Counts = self._counted - self._equal
        return strictly

    def equal(self) -> Counts:
        """Return how many values are equal to each threshold."""
        self._count()
        return self._equal[:-1].copy()

    def places(self, values: Bits) -> Counts:
        """Return for each value how many thresholds lie below it; nothing is counted.

        >>> counter = ThresholdCounter(np.float32([1.0, 2.0]).view(np.uint32))
        >>> counter.places(np.float32([2.0, 0.5, 3.0]).view(np.uint32)).tolist()
        [1, 0, 2]
        """
        return self._place(values.astype(np.int64))[0]

    def _count(self) -> None:
        """Count the places that wait."""
        for counts, waiting in ((self._counted, self._waiting), (self._equal, self._ties)):
            if waiting:
                counts += np.bincount(np.concatenate(waiting), minlength=counts.size)
                waiting.clear()

    def _place(self, values: Counts) -> tuple[Counts, Counts]:
        """Return for each value how many thresholds lie below it, and which values equal one."""
        places: Counts = self._before[self._cells(values)]
        found = self._thresholds[places]
        beyond = np.flatnonzero(found < values)
        for _ in range(_STEPS):
            if not beyond.size:
                break
            places[beyond] += 1
            found[beyond] = self._thresholds[places[beyond]]
            beyond = beyond[found[beyond] < values[beyond]]
        else:
            places[beyond] = np.searchsorted(self._thresholds, values[beyond])
            found[beyond] = self._thresholds[places[beyond]]
        return places, np.flatnonzero(found == values)

    def _cells(self, values: Counts) -> Counts:
        """Return the cell of each value."""
        block = values >> _BLOCK_BITS
        cells: Counts = values >> self._shift[block]
        cells += self._offset[block]
        return cells
