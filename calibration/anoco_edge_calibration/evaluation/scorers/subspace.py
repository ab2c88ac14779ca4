"""The principal subspace of the bank, which is the idea of SubspaceAD (Lendering et al., 2026).

The patches of good parts lie close to an affine subspace: the mean of the bank plus its leading
principal components, as many as explain a share of its variance (99 % unless told, as SubspaceAD).
The energy of a patch is the length of what this subspace cannot represent:

    E_i = | (I - V V^T) (q_i - mean) |,   V the leading components.

SubspaceAD squares it, which orders patches in the same way. Its score of a picture (the mean of the
highest 1 % of its map) and its augmentation are left out: pooling and bank are the same for all
scorers here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import UsageError
from anoco_edge.scoring.types import Floats, Scores
from anoco_edge_calibration.evaluation.scorers.knn import distance_scores
from anoco_edge_calibration.evaluation.scorers.neighbor_cache import NeighborCache
from anoco_edge_calibration.evaluation.scorers.search import Rows

VARIANCE = 0.99


class Subspace:
    """Energy: distance to the principal subspace of the bank."""

    name = "subspace"

    def __init__(self, cache: NeighborCache, variance: float = VARIANCE) -> None:
        """`variance` is the share of the bank's variance that the subspace explains at least."""
        check_variance(variance)
        self._cache = cache
        mean, components, values = cache.once("principal", lambda: principal(cache.features))
        self._mean = mean.astype(np.float32)
        # The residual is the part along the other components: one product, and no cancellation.
        outside = components[:, leading(values, variance) :]
        self._outside = np.ascontiguousarray(outside, dtype=np.float32)

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`; its evidence is the nearest patch of the bank.

        >>> from anoco_edge.scoring import References
        >>> line = np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]])
        >>> scorer = Subspace(NeighborCache(References.of(line)[0]))
        >>> scorer.score(np.array([[9.0, 2.0], [2.0, 5.0]])).energy.tolist()
        [0.0, 3.0]
        """
        anchor, _ = self._cache.nearest("l2", query)
        return distance_scores(self._cache, query, self.residual(query), anchor)

    def residual(self, query: Floats) -> NDArray[np.float64]:
        """Return the distance of each row of `query` to the subspace."""
        outside = (query.astype(np.float32, copy=False) - self._mean) @ self._outside
        length: NDArray[np.float64] = np.sqrt(
            np.einsum("ij,ij->i", outside, outside, dtype=np.float64)
        )
        return length


def check_variance(variance: float) -> None:
    """Raise UsageError unless this is a share of variance that a subspace can explain."""
    if not 0 < variance < 1:
        raise UsageError(f"variance is {variance}", hint="it is a share: above 0 and below 1")


def principal(
    features: Rows,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return mean, principal components (columns) and their variances, the largest first."""
    centred = features.astype(np.float64)
    mean = centred.mean(axis=0)
    centred -= mean
    values, vectors = np.linalg.eigh(centred.T @ centred / max(len(features) - 1, 1))
    return mean, vectors[:, ::-1], np.maximum(values[::-1], 0)


def leading(values: NDArray[np.float64], variance: float) -> int:
    """Return how many components explain this share, and leave at least one out.

    A subspace of all components represents everything. Patches without variance need none.

    >>> values = np.array([6.0, 3.0, 0.9, 0.1])
    >>> [leading(values, share) for share in (0.5, 0.9, 0.95, 0.999)], leading(0 * values, 0.99)
    ([1, 2, 3, 3], 0)
    """
    explained = np.cumsum(values)
    if explained[-1] == 0:
        return 0
    # The cumulated sums are compared with a little slack, so that rounding adds no component.
    needed = int(np.searchsorted(explained, variance * explained[-1] * (1 - 1e-12))) + 1
    return min(needed, len(values) - 1)
