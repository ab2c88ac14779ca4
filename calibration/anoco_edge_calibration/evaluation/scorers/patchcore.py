"""PatchCore (Roth et al., CVPR 2022) on the same features as the other scorers.

The bank is thinned to a tenth by greedy k-center selection. The energy of a patch is the euclidean
distance to the nearest patch m* of the thinned bank. The score of the picture is that of its
strongest patch q*, re-weighted by how isolated m* is. With N(m*), the nine patches of the thinned
bank nearest to m* (m* is one of them),

    score = (1 - exp |q* - m*| / sum over m in N(m*) of exp |q* - m|) |q* - m*|.

The paper of ANoCo does not say which share its PatchCore keeps; a tenth is PatchCore's own middle
setting. PatchCore's pooling of two layers and its wider smoothing of maps are left out, because
features and maps are the same for all scorers here.
"""

from __future__ import annotations

import numpy as np

from anoco_edge.scoring.types import Floats, Scores
from anoco_edge.teaching.coreset import thin
from anoco_edge_calibration.evaluation.scorers.knn import distance_scores
from anoco_edge_calibration.evaluation.scorers.neighbor_cache import NeighborCache
from anoco_edge_calibration.evaluation.scorers.search import Search

KEPT = 10  # percent of the bank
AROUND = 9  # patches around m*, as in the published code


class PatchCore:
    """The distance to the nearest patch of a coreset, and a re-weighted score of the picture."""

    name = "patchcore"

    def __init__(self, cache: NeighborCache) -> None:
        self._cache = cache
        self._kept = thin(cache.features, -(-len(cache.features) * KEPT // 100)).rows
        self._search = Search(cache.features[self._kept])

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`, the patches of one picture.

        >>> from anoco_edge.scoring import References
        >>> cache = NeighborCache(References.of(np.array([[3.0, 4.0], [3.0, 4.0]]))[0])
        >>> PatchCore(cache).score(np.array([[3.0, 3.0], [0.0, 4.0]])).picture
        3.0
        """
        rows = self._cache.placed("l2", query)
        anchor, squared = self._cache.latest("patchcore", query, lambda: self._search.nearest(rows))
        distance = np.sqrt(squared)
        strongest = int(distance.argmax())
        picture = self._weight(rows[strongest], int(anchor[strongest])) * distance[strongest]
        scores = distance_scores(self._cache, query, distance, self._kept[anchor])
        return Scores(**{**vars(scores), "picture": float(picture)})

    def _weight(self, patch: Floats, nearest: int) -> float:
        rows = self._search.rows.astype(np.float64)
        if len(rows) == 1:  # it has no neighbors
            return 1.0
        around = np.linalg.norm(rows - rows[nearest], axis=1)
        around[nearest] = -1  # it comes first among its copies
        members = np.argsort(around, kind="stable")[:AROUND]
        distances = np.linalg.norm(rows[members] - patch.astype(np.float64), axis=1)
        shares = np.exp(distances - distances.max())
        return float(1 - shares[0] / shares.sum())
