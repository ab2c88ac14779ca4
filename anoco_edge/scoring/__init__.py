"""ANoCo scoring: features in, energies out.

`reference` is the specification in float64 NumPy; the other scorers are measured against it.
"""

from __future__ import annotations

from anoco_edge.scoring.patches import PatchScorer, score_patches
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
    "PatchScorer",
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
