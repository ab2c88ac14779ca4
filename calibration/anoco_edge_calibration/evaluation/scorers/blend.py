"""ANoCo's energy and the distance to the principal subspace of the bank, as one energy.

Eq. 10 of the paper is the fourth power of a length where a patch turns little, and `Subspace` gives
a length r. The blend is the geometric mean of two fourth powers,

    E_i = sqrt(E_i of ANoCo * r_i^4),

so that neither weighs more by its power alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anoco_edge.scoring import Scorer
from anoco_edge.scoring.types import Floats, Scores
from anoco_edge_calibration.evaluation.scorers.neighbor_cache import NeighborCache
from anoco_edge_calibration.evaluation.scorers.subspace import Subspace


class Blend:
    """Energy: geometric mean of ANoCo's and the subspace's. The evidence is ANoCo's."""

    name = "anoco-subspace"

    def __init__(self, cache: NeighborCache, anoco: Scorer, key: str, subspace: Subspace) -> None:
        """Blends with the same `key` have the same ANoCo, which scores a picture once for all."""
        self._cache = cache
        self._anoco = anoco
        self._key = f"anoco {key}"
        self._subspace = subspace

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`.

        >>> from anoco_edge.scoring import References, open_scorer
        >>> bank = References.of(np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]]))[0]
        >>> cache, anoco = NeighborCache(bank), open_scorer("reference", bank)
        >>> blend = Blend(cache, anoco, "", Subspace(cache))
        >>> query = np.array([[9.0, 2.0], [2.0, 5.0]])
        >>> [energy > 0 for energy in blend.score(query).energy.tolist()]
        [False, True]
        """
        found = self._cache.latest(self._key, query, lambda: self._anoco.score(query))
        squared = self._subspace.residual(query) ** 2
        blended = np.sqrt(found.energy.astype(np.float64)) * squared
        return replace(found, energy=blended.astype(np.float32))
