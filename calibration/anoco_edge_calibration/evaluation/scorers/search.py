"""Exact search for the nearest patch of a bank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from anoco_edge.scoring.types import Floats

Rows = NDArray[np.float32]
Indices = NDArray[np.int64]

BLOCK_BYTES = 32_000_000  # the size of one block of the distance matrix
_PAIRS = 4096  # so many pairs are compared exactly at once
# How much the errors of two float32 distances may differ, relative to the lengths. One error is at
# most 1.2e-6: measured with rows of 1 to 2048 numbers, of which the worst are far from the origin.
_ROUNDING = 4e-6


class Search:
    """Finds the exact nearest rows; it computes the distance matrix block by block."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.dim = rows.shape[1]
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        self._squares = squares.astype(np.float32)
        self._longest = float(np.sqrt(self._squares.max()))

    def nearest(self, query: Rows) -> tuple[Indices, NDArray[np.float64]]:
        """Return index (the lowest on a tie) and squared distance of each query's nearest row."""
        anchor = np.empty(len(query), np.int64)
        squared = np.empty(len(query), np.float64)
        block = max(1, BLOCK_BYTES // (4 * len(self.rows)))
        for start in range(0, len(query), block):
            some = slice(start, start + block)
            anchor[some], squared[some] = self._nearest(query[some])
        return anchor, squared

    def squared_distances(self, query: Rows) -> Rows:
        """Return the distances to every row in float32; they are never negative."""
        squared: Rows = query @ self.rows.T
        squared *= -2
        squared += self._squares
        squared += np.einsum("ij,ij->i", query, query)[:, None]
        np.maximum(squared, 0, out=squared)
        return squared

    def _nearest(self, query: Rows) -> tuple[Indices, NDArray[np.float64]]:
        # This is |q - r|^2 without |q|^2, which is the same for all r. It cancels where q is close
        # to r, so it only tells which rows may be nearest: those within rounding of the least.
        product = query @ self.rows.T
        product *= -2
        product += self._squares
        length = np.sqrt(np.einsum("ij,ij->i", query, query)) + self._longest
        slack = (_ROUNDING * length * self._longest).astype(np.float32)
        close = product <= (product.min(axis=1) + slack)[:, None]
        anchor = np.zeros(len(query), np.int64)
        squared = np.full(len(query), np.inf)
        for i, j in _pairs(close):
            difference = query[i].astype(np.float64) - self.rows[j]
            found = np.einsum("ij,ij->i", difference, difference)
            # Pairs come in the order of i, then j: the first of the least is the lowest index.
            order = np.lexsort((np.arange(len(i)), found, i))
            first = order[np.unique(i[order], return_index=True)[1]]
            better = first[found[first] < squared[i[first]]]
            anchor[i[better]], squared[i[better]] = j[better], found[better]
        return anchor, squared


def _pairs(close: NDArray[np.bool_]) -> Iterator[tuple[Indices, Indices]]:
    """Yield the indices of the true elements in bounded pieces."""
    places = np.flatnonzero(close)
    for start in range(0, len(places), _PAIRS):
        i, j = np.divmod(places[start : start + _PAIRS], close.shape[1])
        yield i, j


def unit_rows(features: Floats) -> Rows:
    """Return the rows scaled to length one, rounded once; float64 is used in small pieces."""
    units = np.empty(features.shape, np.float32)
    for start in range(0, len(units), 1024):
        block = features[start : start + 1024].astype(np.float64)
        units[start : start + 1024] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return units
