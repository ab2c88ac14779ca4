"""Percentiles, mean and deviation of a list of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anoco_edge.errors import UsageError


@dataclass(frozen=True)
class LatencySummary:
    """Percentiles, mean and standard deviation, in the unit of the values."""

    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    mean: float
    std: float


def summarize(values: Sequence[float]) -> LatencySummary:
    """Summarize values. Percentiles interpolate linearly; the deviation is the sample's (n - 1).

    >>> summary = summarize([1.0, 2.0, 3.0, 4.0])
    >>> summary.p50, summary.max, round(summary.std, 3)
    (2.5, 4.0, 1.291)
    """
    if not values:
        raise UsageError("there is nothing to summarize", hint="measure at least once")
    times = np.asarray(values, dtype=np.float64)
    p50, p90, p95, p99 = (float(p) for p in np.percentile(times, [50, 90, 95, 99]))
    std = float(times.std(ddof=1)) if len(times) > 1 else 0.0
    return LatencySummary(p50, p90, p95, p99, float(times.max()), float(times.mean()), std)
