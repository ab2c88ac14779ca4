"""The trade-off of a threshold: missed defects against false rejects on given pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anoco_edge.errors import UsageError
from anoco_edge.reporting.charts import Chart, Marker, Series, line_chart
from anoco_edge.scoring.conformal import checked_scores


@dataclass(frozen=True)
class Tradeoff:
    """Both rates (0 to 1) at every distinct score, ascending, and those of the chosen threshold.

    `missed` rises with the threshold and `false_rejects` falls. `at` is the share of defects that
    the chosen threshold misses.
    """

    thresholds: tuple[float, ...]
    missed: tuple[float, ...]
    false_rejects: tuple[float, ...]
    threshold: float
    at: float
    good: int
    good_rejected: int
    defects: int
    defects_missed: int

    def lowest_for(self, rate: float) -> int:
        """Return the index of the lowest threshold that rejects at most this share of parts."""
        return next(i for i, rejects in enumerate(self.false_rejects) if rejects <= rate)


def tradeoff(good: Sequence[float], defects: Sequence[float], threshold: float) -> Tradeoff:
    """Count both kinds of error at every threshold.

    A part is rejected when its score is above the threshold; it passes when the score is equal.

    >>> found = tradeoff([1.0, 2.0, 4.0], [3.0, 9.0], threshold=3.0)
    >>> found.thresholds
    (1.0, 2.0, 3.0, 4.0, 9.0)
    >>> found.missed, found.at
    ((0.0, 0.0, 0.5, 0.5, 1.0), 0.5)
    """
    passing, failing = np.sort(checked_scores(good)), np.sort(checked_scores(defects))
    if not len(passing) or not len(failing):
        raise UsageError(
            f"{len(passing)} good and {len(failing)} defective parts show no trade-off",
            hint="give at least one of each",
        )
    levels = np.unique(np.concatenate([passing, failing]))
    missed = np.searchsorted(failing, levels, side="right")
    rejected = len(passing) - np.searchsorted(passing, levels, side="right")
    slipped = int((failing <= threshold).sum())
    return Tradeoff(
        thresholds=tuple(levels.tolist()),
        missed=tuple((missed / len(failing)).tolist()),
        false_rejects=tuple((rejected / len(passing)).tolist()),
        threshold=threshold,
        at=slipped / len(failing),
        good=len(passing),
        good_rejected=int((passing > threshold).sum()),
        defects=len(failing),
        defects_missed=slipped,
    )


def tradeoff_chart(found: Tradeoff) -> Chart:
    """Chart missed defects over false rejects, with the chosen threshold as a point.

    >>> tradeoff_chart(tradeoff([1, 2], [3, 4], 2.5)).title
    'Missed defects against false rejects'
    """
    chosen = Marker(
        100 * found.good_rejected / found.good, 100 * found.at, f"threshold {found.threshold:.4g}"
    )
    curve = Series("", [100 * v for v in found.false_rejects], [100 * v for v in found.missed])
    return line_chart(
        [curve],
        x_label="good parts rejected (%)",
        y_label="defects missed (%)",
        title="Missed defects against false rejects",
        markers=[chosen],
    )
