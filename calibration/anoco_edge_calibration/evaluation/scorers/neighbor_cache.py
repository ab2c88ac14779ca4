"""A cache of what several scorers need of the same picture and bank: neighbors and distances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from anoco_edge.images.preprocess import Mask
from anoco_edge.scoring.types import Floats, References, check_query
from anoco_edge_calibration.evaluation.scorers.search import Indices, Rows, Search, unit_rows

if TYPE_CHECKING:
    from anoco_edge_calibration.evaluation.scorers.winclip import WindowBank

Space = Literal["l2", "cosine", "mahalanobis"]
SHARE = 5  # percent of the bank; the setting for k-NN in the paper's ablation
BLOCK_BYTES = 32_000_000  # the size of one block of a similarity matrix
# The share of the mean variance that is added to each variance, like PaDiM's 0.01, but in the units
# of the features. Without it the covariance of a bank with fewer patches than features has no
# inverse.
RIDGE = 0.01

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Edges:
    """The neighbors of each row, `columns[starts[i] : starts[i + 1]]`, ascending, with weights."""

    starts: Indices
    columns: Indices
    weights: NDArray[np.float32]

    @property
    def counts(self) -> Indices:
        """The number of neighbors of each row."""
        return np.diff(self.starts)


@dataclass(frozen=True)
class Distances:
    """For each row its nearest reference and the mean distance to the nearest 5 % of the bank."""

    anchor: Indices
    mean: NDArray[np.float64]


class NeighborCache:
    """One bank, with the results for the latest picture, which several scorers ask for."""

    def __init__(
        self,
        bank: References,
        pictures: NDArray[np.integer[Any]] | None = None,
        border: Mask | None = None,
        windows: WindowBank | None = None,
    ) -> None:
        """Keep a bank.

        `pictures` holds the number of the picture of each patch; None stands for one picture.
        `border` marks the patches at the border of a reference; None stands for no patch.
        `windows` says what WinCLIP needs to know about the bank.
        """
        self.windows = windows
        self.pictures = np.zeros(len(bank.norms), np.int64) if pictures is None else pictures
        self.border = np.zeros(len(bank.norms), np.bool_) if border is None else border
        self.k = share_of(len(bank.norms))
        self._bank = bank
        self._lasting: dict[str, object] = {}
        self._latest: dict[str, tuple[Floats, Any]] = {}

    @property
    def features(self) -> Rows:
        """The bank, with one row for each patch."""
        return self.once("features", lambda: self._bank.features.astype(np.float32, copy=False))

    @property
    def units(self) -> Rows:
        """The bank with each row scaled to length one."""
        return self.once("units", lambda: unit_rows(self.features))

    def once(self, what: str, compute: Callable[[], _Value]) -> _Value:
        """Return a value that depends on the bank alone; it is computed once."""
        if what not in self._lasting:
            self._lasting[what] = compute()
        return cast("_Value", self._lasting[what])

    def latest(self, what: str, query: Floats, compute: Callable[[], _Value]) -> _Value:
        """Return a value that depends on bank and picture; it is kept for the latest picture."""
        kept = self._latest.get(what)
        if kept is None or not np.array_equal(kept[0], query):
            check_query(query, self.features.shape[1])
            kept = self._latest[what] = (query, compute())
        found: _Value = kept[1]
        return found

    def search(self, space: Space) -> Search:
        """Return an exact search for the nearest patch in this space."""
        return self.once(f"search {space}", lambda: Search(self.placed(space, self.features)))

    def whiten(self, features: Floats) -> Rows:
        """Transform features: their euclidean distance is then the bank's Mahalanobis distance."""
        matrix = self.once("whitening", lambda: whitening(self.features))
        return (features.astype(np.float64) @ matrix).astype(np.float32)

    def placed(self, space: Space, query: Floats) -> Rows:
        """Transform rows into this space."""
        if space == "mahalanobis":
            return self.whiten(query)
        if space == "cosine":
            return self.units if query is self.features else unit_rows(query)
        return np.ascontiguousarray(query, dtype=np.float32)

    def nearest(self, space: Space, query: Floats) -> tuple[Indices, NDArray[np.float64]]:
        """Return the exact nearest patch of each row and the square of its distance."""
        return self.latest(
            f"nearest {space}",
            query,
            lambda: self.search(space).nearest(self.placed(space, query)),
        )

    def distances(self, space: Space, query: Floats) -> Distances:
        """Return the distances to the nearest 5 % of the bank; that of a cosine s is 1 - s."""
        return self.latest(f"distances {space}", query, lambda: self._distances(space, query))

    def _distances(self, space: Space, query: Floats) -> Distances:
        if space == "cosine":
            edges = self.retrieved(query)
            s = edges.weights.reshape(-1, self.k)
            best = edges.columns.reshape(s.shape)[np.arange(len(s)), s.argmax(axis=1)]
            return Distances(best, 1 - s.mean(axis=1, dtype=np.float64))
        rows, search = self.placed(space, query), self.search(space)
        anchor, mean = np.empty(len(rows), np.int64), np.empty(len(rows))
        for some in blocks(len(rows), len(search.rows)):
            squared = search.squared_distances(rows[some])
            anchor[some] = squared.argmin(axis=1)
            least = np.partition(squared, self.k - 1, axis=1)[:, : self.k]
            mean[some] = np.sqrt(least).mean(axis=1, dtype=np.float64)
        return Distances(anchor, mean)

    def retrieved(self, query: Floats) -> Edges:
        """Return the most similar 5 % of the bank; the weight of an edge is the cosine."""
        return self.latest("retrieved", query, lambda: self._retrieved(unit_rows(query)))

    def _retrieved(self, units: Rows) -> Edges:
        return most_similar(units, self.units, self.k)

    def conforming(self, query: Floats) -> Edges:
        """Return ANoCo's neighbors N(i), as anoco_edge/scoring/reference.py does, in float32."""
        return self.latest("conforming", query, lambda: self._conforming(unit_rows(query)))

    def _conforming(self, units: Rows) -> Edges:
        def chosen(s: Rows) -> NDArray[np.bool_]:
            rows, anchor = np.arange(len(s)), s.argmax(axis=1)
            consistent = self.units[anchor] @ self.units.T > s[rows, anchor][:, None]
            consistent[rows, anchor] = True
            t = np.where(consistent, np.float32(-np.inf), s).max(axis=1)
            neighbors: NDArray[np.bool_] = s > t[:, None]
            neighbors[rows, anchor] = True
            return neighbors

        return _edges(units, self.units, chosen)


def share_of(count: int) -> int:
    """Return how many patches the nearest 5 % are, rounded up.

    >>> [share_of(n) for n in (1, 20, 21, 1024)]
    [1, 1, 2, 52]
    """
    return -(-count * SHARE // 100)


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of the rows of a matrix so that each block stays small."""
    step = max(1, BLOCK_BYTES // (4 * columns))
    for start in range(0, rows, step):
        yield slice(start, start + step)


def most_similar(units: Rows, others: Rows, k: int, *, same: bool = False) -> Edges:
    """Return the `k` most similar others of each row, the lowest index on a tie.

    With `same`, a row is not its own neighbor.

    >>> rows = np.float32([[1, 0], [0, 1], [0.6, 0.8]])
    >>> most_similar(rows, rows, 1, same=True).columns.tolist()
    [2, 2, 1]
    """
    if k == 0:
        return Edges(np.zeros(len(units) + 1, np.int64), np.empty(0, np.int64), np.empty(0, "f4"))
    start = 0

    def chosen(s: Rows) -> NDArray[np.bool_]:
        nonlocal start
        if same:
            own = np.arange(len(s))
            s[own, start + own] = -np.inf
            start += len(s)
        least = np.partition(s, -k, axis=1)[:, -k]
        mask: NDArray[np.bool_] = s > least[:, None]
        ties = s == least[:, None]
        room = k - mask.sum(axis=1)
        if (ties.sum(axis=1) > room).any():
            ties &= np.cumsum(ties, axis=1) <= room[:, None]
        mask |= ties
        return mask

    return _edges(units, others, chosen)


def _edges(units: Rows, others: Rows, choose: Callable[[Rows], NDArray[np.bool_]]) -> Edges:
    """Return the pairs that `choose` selects, with their cosines; it works block by block."""
    counts, columns, weights = [], [], []
    for some in blocks(len(units), len(others)):
        s = units[some] @ others.T
        places = np.flatnonzero(choose(s))
        i, j = np.divmod(places, len(others))
        counts.append(np.bincount(i, minlength=len(s)))
        columns.append(j)
        weights.append(s.ravel()[places])
    starts = np.concatenate([[0], *counts]).cumsum()
    return Edges(starts, np.concatenate(columns), np.concatenate(weights))


def whitening(features: Rows) -> NDArray[np.float64]:
    """Return the matrix that turns euclidean distance into the features' Mahalanobis distance.

    >>> features = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32) * [1, 5, 9]
    >>> np.cov((features @ whitening(features)).T).round(1).diagonal().tolist()
    [0.7, 1.0, 1.0]
    """
    centred = features.astype(np.float64)
    centred -= centred.mean(axis=0)
    covariance = centred.T @ centred / max(len(features) - 1, 1)
    spread = float(np.trace(covariance)) / len(covariance)
    # One patch, or copies of it, have no variance: any multiple of the identity works.
    covariance[np.diag_indices_from(covariance)] += RIDGE * spread if spread > 0 else 1.0
    values, vectors = np.linalg.eigh(covariance)
    matrix: NDArray[np.float64] = vectors / np.sqrt(values)
    return matrix
