"""Rivals of ANoCo on the same features: the distance to the nearest reference patch.

`knn-l2` is the euclidean distance of raw features (PatchCore's patch score without its
re-weighting), `knn-cosine` is 1 - cosine.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from anoco_edge.scoring.types import Floats, References, Scores, check_query

Rows = NDArray[np.float32]
Indices = NDArray[np.int64]

BLOCK_BYTES = 32_000_000  # of one block of the distance matrix
_PAIRS = 4096  # compared one by one, at once
# How far two float32 distances may be off against each other, relative to the lengths. One is off
# by 1.2e-6 at most: measured with 1 to 2048 numbers a row, the worst far from the origin.
_ROUNDING = 4e-6


class KnnL2:
    """Energy: distance to the nearest reference patch."""

    name = "knn-l2"

    def __init__(self, bank: References) -> None:
        self._search = _Search(bank.features.astype(np.float32, copy=False))

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`.

        >>> bank, _ = References.of(np.array([[3.0, 4.0], [1.0, 0.0]]))
        >>> KnnL2(bank).score(np.array([[0.0, 1.0], [3.0, 4.0]])).energy.tolist()
        [1.4142135381698608, 0.0]
        """
        check_query(query, self._search.dim)
        rows = np.ascontiguousarray(query, dtype=np.float32)
        anchor, squared = self._search.nearest(rows)
        nearest = self._search.rows[anchor]
        cosine = np.einsum("ij,ij->i", _units(rows), _units(nearest))
        return _scores(np.sqrt(squared), anchor, cosine)


class KnnCosine:
    """Energy: 1 - cosine to the most similar reference patch."""

    name = "knn-cosine"

    def __init__(self, bank: References) -> None:
        self._search = _Search(_units(bank.features))

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`.

        >>> bank, _ = References.of(np.array([[3.0, 4.0], [1.0, 0.0]]))
        >>> KnnCosine(bank).score(np.array([[0.0, 1.0], [6.0, 8.0]])).energy.round(6).tolist()
        [0.20000000298023224, 0.0]
        """
        check_query(query, self._search.dim)
        # 1 - cos(u, v) = |u - v|^2 / 2 for unit vectors: the same search, and no cancellation.
        anchor, squared = self._search.nearest(_units(query))
        return _scores(squared / 2, anchor, 1 - squared / 2)


class _Search:
    """Exact nearest rows; the distance matrix is held in blocks."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.dim = rows.shape[1]
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        self._squares = squares.astype(np.float32)
        self._longest = float(np.sqrt(self._squares.max()))

    def nearest(self, query: Rows) -> tuple[Indices, NDArray[np.float64]]:
        """Index (the lowest on a tie) and squared distance of each query's nearest row."""
        anchor = np.empty(len(query), np.int64)
        squared = np.empty(len(query), np.float64)
        block = max(1, BLOCK_BYTES // (4 * len(self.rows)))
        for start in range(0, len(query), block):
            some = slice(start, start + block)
            anchor[some], squared[some] = self._nearest(query[some])
        return anchor, squared

    def _nearest(self, query: Rows) -> tuple[Indices, NDArray[np.float64]]:
        # |q - r|^2 without |q|^2, which is the same for all r. The product cancels where q is
        # close to r, so it only says who may be nearest: those within its rounding of the least.
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
    """Where it is true, in bounded pieces."""
    places = np.flatnonzero(close)
    for start in range(0, len(places), _PAIRS):
        i, j = np.divmod(places[start : start + _PAIRS], close.shape[1])
        yield i, j


def _units(features: Floats) -> Rows:
    """Rows at length one, rounded once; float64 only in small pieces."""
    units = np.empty(features.shape, np.float32)
    for start in range(0, len(units), 1024):
        block = features[start : start + 1024].astype(np.float64)
        units[start : start + 1024] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return units


def _scores(energy: NDArray[np.float64], anchor: Indices, cosine: Floats) -> Scores:
    return Scores(
        energy=energy.astype(np.float32),
        anchor=anchor,
        similarity=cosine.astype(np.float32),
        neighbors=np.ones(len(anchor), np.int64),
    )
