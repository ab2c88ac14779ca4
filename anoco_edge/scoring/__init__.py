"""ANoCo scoring: features in, energies out.

`reference` is the specification in float64 NumPy; the other scorers are measured against it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from anoco_edge.errors import UsageError
from anoco_edge.scoring.device_array import DeviceArray, OnDevice, device_array, on_device
from anoco_edge.scoring.pooling import POOLINGS, pool
from anoco_edge.scoring.registry import (
    SCORERS,
    ScorerChoice,
    ScorerSpec,
    choose_scorer,
    open_scorer,
)
from anoco_edge.scoring.types import (
    METRICS,
    DeviceScorer,
    Floats,
    Metric,
    Parameters,
    References,
    Scorer,
    ScorerOptions,
    Scores,
)

__all__ = [
    "METRICS",
    "POOLINGS",
    "SCORERS",
    "Metric",
    "Parameters",
    "References",
    "Scorer",
    "ScorerChoice",
    "ScorerOptions",
    "ScorerSpec",
    "Scores",
    "choose_scorer",
    "open_scorer",
    "pool",
    "score_patches",
]


def score_patches(
    query: ArrayLike | OnDevice,
    references: ArrayLike,
    lam: float = 1.0,
    metric: Metric = "product",
    scorer: str = "auto",
    *,
    floor: float = 0.05,
) -> Scores:
    """Score query patches against reference patches; both are raw features, one row per patch.

    Reference patches of zero norm are left out; `anchor` counts rows of `references`. With
    scorer="cuda" the query may be an array on the GPU (of torch, cupy, ...), and stays there.

    >>> s = score_patches([[1.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [1.0, 0.1]], scorer="reference")
    >>> s.anchor.tolist(), bool(s.energy[1] > s.energy[0])
    ([0, 1], True)
    """
    bank, kept = References.of(_features(references))
    parameters = Parameters(lam=lam, metric=metric, floor=floor)
    rows = device_array(query) if on_device(query) else _features(query)
    opened = open_scorer(scorer, bank, parameters, half=rows.dtype == np.float16)
    if isinstance(opened, DeviceScorer):
        scores = opened.score(rows)
    elif isinstance(rows, DeviceArray):
        raise UsageError(
            f"the query lies on a GPU, where the scorer {opened.name} does not reach",
            hint='use scorer="cuda", or copy it first: .cpu().numpy() in torch, .get() in cupy',
        )
    else:
        scores = opened.score(rows)
    return replace(scores, anchor=kept[scores.anchor])


def _features(values: ArrayLike | OnDevice) -> Floats:
    array = np.asarray(values)
    return array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)
