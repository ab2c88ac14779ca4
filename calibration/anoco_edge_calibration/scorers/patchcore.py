"""PatchCore (Roth et al., CVPR 2022) on the features at hand.

The bank is thinned to a tenth by greedy k-centre selection, a patch's energy is the euclidean
distance to the nearest patch m* that is left, and the picture's score is that of its strongest
patch q*, re-weighted by how alone m* is: among N(m*), the nine patches of the thinned bank nearest
to m* (m* is one of them),

    score = (1 - exp |q* - m*| / sum over m in N(m*) of exp |q* - m|) |q* - m*|.

The paper of ANoCo does not say which share its PatchCore keeps; a tenth is PatchCore's own middle
setting. PatchCore's pooling of two layers and its wider smoothing of maps are left out: features
and maps are the same for all scorers here.
"""

from __future__ import annotations

import numpy as np

from anoco_edge.scoring.types import Floats, Scores
from anoco_edge.teaching.coreset import thin
from anoco_edge_calibration.scorers.knn import distance_scores
from anoco_edge_calibration.scorers.near import Near
from anoco_edge_calibration.scorers.search import Search

KEPT = 10  # percent of the bank
AROUND = 9  # patches around m*, as in the published code


class PatchCore:
    """Distance to the nearest patch of a coreset; a re-weighted score of the picture."""

    name = "patchcore"

    def __init__(self, near: Near) -> None:
        self._near = near
        self._kept = thin(near.features, -(-len(near.features) * KEPT // 100)).rows
        self._search = Search(near.features[self._kept])

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`, the patches of one picture.

        >>> from anoco_edge.scoring import References
        >>> near = Near(References.of(np.array([[3.0, 4.0], [3.0, 4.0]]))[0])
        >>> PatchCore(near).score(np.array([[3.0, 3.0], [0.0, 4.0]])).picture
        3.0
        """
        rows = self._near.placed("l2", query)
        anchor, squared = self._near.latest("patchcore", query, lambda: self._search.nearest(rows))
        distance = np.sqrt(squared)
        strongest = int(distance.argmax())
        picture = self._weight(rows[strongest], int(anchor[strongest])) * distance[strongest]
        scores = distance_scores(self._near, query, distance, self._kept[anchor])
        return Scores(**{**vars(scores), "picture": float(picture)})

    def _weight(self, patch: Floats, nearest: int) -> float:
        rows = self._search.rows.astype(np.float64)
        if len(rows) == 1:  # nothing lies around it
            return 1.0
        around = np.linalg.norm(rows - rows[nearest], axis=1)
        around[nearest] = -1  # of copies it is the first
        members = np.argsort(around, kind="stable")[:AROUND]
        distances = np.linalg.norm(rows[members] - patch.astype(np.float64), axis=1)
        shares = np.exp(distances - distances.max())
        return float(1 - shares[0] / shares.sum())
