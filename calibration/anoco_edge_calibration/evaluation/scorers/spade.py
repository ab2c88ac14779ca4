"""SPADE (Cohen and Hoshen, 2020) on the same features as the other scorers.

A picture is represented by the mean of its patches, and its score is the mean euclidean distance to
the 50 nearest reference pictures. The energy of a patch is the distance to the nearest patch of
those pictures. 50 and 1 are SPADE's own numbers. With fewer references all of them are retrieved,
so that in the few-shot setting the energies are those of `knn-l2` and only the score of the picture
differs. A view of a reference counts as a picture.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anoco_edge.scoring.types import Floats, Scores
from anoco_edge_calibration.evaluation.scorers.knn import distance_scores
from anoco_edge_calibration.evaluation.scorers.neighbor_cache import NeighborCache
from anoco_edge_calibration.evaluation.scorers.search import Indices, Search

RETRIEVED = 50


class Spade:
    """The distance to the nearest patch of the most similar pictures, and to these pictures."""

    name = "spade"

    def __init__(self, cache: NeighborCache) -> None:
        self._cache = cache
        self._numbers = np.unique(cache.pictures)
        self._means = np.stack(
            [
                cache.features[cache.pictures == number].mean(axis=0, dtype=np.float64)
                for number in self._numbers
            ]
        )

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`, the patches of one picture.

        >>> from anoco_edge.scoring import References
        >>> cache = NeighborCache(References.of(np.array([[3.0, 4.0], [1.0, 0.0]]))[0])
        >>> scores = Spade(cache).score(np.array([[2.0, 4.0], [2.0, 4.0]]))
        >>> scores.energy.tolist(), scores.picture
        ([1.0, 1.0], 2.0)
        """
        whole = query.mean(axis=0, dtype=np.float64)
        distances = np.linalg.norm(self._means - whole, axis=1)
        nearest = np.argsort(distances, kind="stable")[:RETRIEVED]
        anchor, squared = self._patches(query, nearest)
        scores = distance_scores(self._cache, query, np.sqrt(squared), anchor)
        return Scores(**{**vars(scores), "picture": float(distances[nearest].mean())})

    def _patches(self, query: Floats, pictures: Indices) -> tuple[Indices, NDArray[np.float64]]:
        if len(pictures) == len(self._numbers):
            return self._cache.nearest("l2", query)
        rows = np.flatnonzero(np.isin(self._cache.pictures, self._numbers[pictures]))
        anchor, squared = Search(self._cache.features[rows]).nearest(
            self._cache.placed("l2", query)
        )
        return rows[anchor], squared
