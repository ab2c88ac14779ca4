"""Accuracy on labelled pictures."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from anoco_edge.errors import UsageError


def auroc(scores: ArrayLike, anomalous: ArrayLike) -> float:
    """Chance that a random anomalous picture scores above a random good one; ties count half.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True])
    0.75
    """
    values = np.asarray(scores, dtype=np.float64)
    labels = np.asarray(anomalous, dtype=np.bool_)
    bad, good = int(labels.sum()), int((~labels).sum())
    if not bad or not good:
        raise UsageError("AUROC needs at least one good and one anomalous picture")
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # mean rank of what ties
    return float((ranks[labels].sum() - bad * (bad + 1) / 2) / (bad * good))
