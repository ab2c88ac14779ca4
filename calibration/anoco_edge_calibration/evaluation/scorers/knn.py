"""Scorers that use distances alone.

`Nearest` is the distance to the nearest reference patch. `NearestShare` is the paper's k-NN "under
the 5 % setting". The paper does not say how the neighbors are combined; here it is the mean
distance to the nearest 5 % of the bank (rounded up).

The space `l2` has the euclidean distance of raw features, `cosine` has 1 - cosine. `mahalanobis`
has the Mahalanobis distance with the covariance of the whole bank, plus 1 % of the mean variance on
its diagonal. (The paper does not say which covariance; that of the neighbors alone would be
singular.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anoco_edge.scoring.types import Floats, Scores
from anoco_edge_calibration.evaluation.scorers.neighbor_cache import NeighborCache, Space
from anoco_edge_calibration.evaluation.scorers.search import Indices, unit_rows


class Nearest:
    """Energy: distance to the nearest reference patch."""

    def __init__(self, cache: NeighborCache, space: Space) -> None:
        self.name = f"knn-{space}"
        self._cache = cache
        self._space = space

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`.

        >>> from anoco_edge.scoring import References
        >>> cache = NeighborCache(References.of(np.array([[3.0, 4.0], [1.0, 0.0]]))[0])
        >>> Nearest(cache, "l2").score(np.array([[0.0, 1.0], [3.0, 4.0]])).energy.tolist()
        [1.4142135381698608, 0.0]
        """
        anchor, squared = self._cache.nearest(self._space, query)
        # 1 - cos(u, v) = |u - v|^2 / 2 for unit vectors: the same search, and no cancellation.
        energy = squared / 2 if self._space == "cosine" else np.sqrt(squared)
        return distance_scores(self._cache, query, energy, anchor)


class NearestShare:
    """Energy: mean distance to the nearest 5 % of the bank."""

    def __init__(self, cache: NeighborCache, space: Space) -> None:
        self.name = f"knn-{space}-5pct"
        self._cache = cache
        self._space = space

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`.

        >>> from anoco_edge.scoring import References
        >>> bank = np.arange(1.0, 41.0)[:, None]  # 5 % of 40 patches are two
        >>> cache = NeighborCache(References.of(bank)[0])
        >>> NearestShare(cache, "l2").score(np.array([[41.0], [20.0]])).energy.tolist()
        [1.5, 0.5]
        """
        found = self._cache.distances(self._space, query)
        return distance_scores(self._cache, query, found.mean, found.anchor, self._cache.k)


def distance_scores(
    cache: NeighborCache,
    query: Floats,
    energy: NDArray[np.float64],
    anchor: Indices,
    neighbors: int = 1,
) -> Scores:
    """Return energies with the evidence that reports show: the nearest patch and its cosine."""
    cosine = np.einsum("ij,ij->i", unit_rows(query), cache.units[anchor])
    return Scores(
        energy=energy.astype(np.float32),
        anchor=anchor,
        similarity=cosine,
        neighbors=np.full(len(anchor), neighbors, np.int64),
    )
