"""Compares energies with those of the reference scorer, row by row.

A row whose neighbors are decided by less than rounding may differ, so such rows are only counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anoco_edge.errors import UsageError
from anoco_edge.scoring.types import Floats, Scores

EPS = 2e-6
"""Below this margin float32 may decide a row otherwise; this was measured on real features."""


@dataclass(frozen=True)
class Agreement:
    """The share of rows that are too close to call, and how many of the others differ."""

    undecided: float
    disagree: int

    def __str__(self) -> str:
        return f"rows undecided {100 * self.undecided:.2f} %, rows that disagree: {self.disagree}"


def compare(energy: Floats, oracle: Scores, query: Floats, *, eps: float = EPS) -> Agreement:
    """Compare energies with those of the reference scorer on the same rounded inputs.

    Rows whose margin is not over `eps` are undecided (see `anoco_edge.scoring.registry.eps_of`).

    >>> oracle = Scores(np.ones(2), np.zeros(2), np.ones(2), np.ones(2), margin=np.ones(2))
    >>> str(compare(np.array([1.0, 1.1]), oracle, np.ones((2, 4))))
    'rows undecided 0.00 %, rows that disagree: 1'
    """
    if oracle.margin is None:
        raise UsageError("only the reference scorer knows margins", hint="compare with that one")
    decided = oracle.margin > eps
    squares = (query.astype(np.float64) ** 2).sum(axis=1)
    off = np.abs(energy - oracle.energy) > 1e-4 * oracle.energy + 1e-9 * squares
    # A NaN energy is never equal, though every comparison with it is false.
    off |= ~np.isfinite(energy)
    return Agreement(float((~decided).mean()), int((off & decided).sum()))
