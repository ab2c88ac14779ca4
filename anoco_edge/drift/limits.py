"""The limits of the drift watch's sums, which make its false-alarm rate hold.

All ranks of a run are taken among the same few calibration scores, so they are not independent: an
unlucky calibration makes the whole run look shifted. But their joint law is the same for every
distribution of scores. The calibration scores cut the line into gaps whose probabilities are
Dirichlet(1, ..., 1), and every new part falls into one of them (a Polya urn). So the highest sum of
an undisturbed run, calibration included, can be simulated once:

    python -m anoco_edge.drift.limits    # prints LIMITS again; takes some minutes
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from anoco_edge.scoring.conformal import beta_interval

HORIZON = 10_000  # watched parts, after which the sums start again at 0
FALSE_ALARMS = 0.01  # most undisturbed runs of that length that warn, over runs and calibrations
LEAST_SCORES = 10  # with fewer, calibration says too little for a sum to mean anything

RUNS = 12_000  # simulated for each limit
# the middle of Beta, so that a limit is too low by chance of the simulation in 1 case of 1000
CONFIDENCE = 0.998

# The keys are numbers of calibration scores. Between two keys the limit of the smaller one holds,
# which is the higher limit.
LIMITS = {
    10: 50.08,
    12: 38.39,
    15: 33.42,
    20: 23.2,
    30: 19.44,
    50: 16.88,
    100: 14.2,
    200: 13.1,
    500: 12.59,
}


def allowance(scores: int) -> float:
    """Return what is subtracted from a sum at every part, in deviations of a rank.

    Half a deviation makes a CUSUM quickest for shifts of one. The rest allows for the chance error
    of calibration: the mean of n scores is off by 1 / sqrt(n), for the whole run.

    >>> allowance(100)
    0.6
    """
    return 0.5 + 1 / math.sqrt(scores)


def rank_scores(scores: int) -> NDArray[np.float64]:
    """Return what each rank 0 to n among n scores adds: normal scores, with mean 0 and deviation 1.

    >>> [round(float(v), 2) for v in rank_scores(3)]
    [-1.36, -0.38, 0.38, 1.36]
    """
    quantile = NormalDist().inv_cdf
    raw = np.array([quantile((rank + 0.5) / (scores + 1)) for rank in range(scores + 1)])
    return np.asarray(raw / np.sqrt((raw**2).mean()))


def limit(scores: int) -> float:
    """Return the sum at which the watch warns.

    >>> limit(50) == limit(57) > limit(5000)
    True
    """
    return LIMITS[max(n for n in LIMITS if n <= scores)]


def highest_sums(
    scores: int, runs: int, seed: int, *, horizon: int = HORIZON
) -> NDArray[np.float64]:
    """Simulate undisturbed runs, each with its own calibration, and return the highest sum of each.

    >>> highest_sums(20, 2, seed=0, horizon=50).shape
    (2,)
    """
    rng = np.random.default_rng([seed, scores])
    weights, least = rank_scores(scores), allowance(scores)
    highest = np.empty(runs)
    for run in range(runs):
        calibration = np.sort(rng.random(scores))
        steps = weights[np.searchsorted(calibration, rng.random(horizon))]
        highest[run] = max(_highest(steps - least), _highest(-steps - least))
    return highest


def simulate(scores: int, *, runs: int = RUNS, seed: int = 0) -> float:
    """Compute the limit for this many calibration scores, rounded up to two decimals."""
    sums = np.sort(highest_sums(scores, runs, seed))
    above = next(
        count
        for count in range(math.ceil(runs * FALSE_ALARMS), 0, -1)
        if beta_interval(count, runs + 1 - count, CONFIDENCE)[1] <= FALSE_ALARMS
    )
    return math.ceil(100 * float(sums[runs - above])) / 100


def _highest(steps: NDArray[np.float64]) -> float:
    """Return the highest value of S = max(0, S + step): how far the path rises above its lowest."""
    path = np.concatenate(([0.0], np.cumsum(steps)))
    return float((path - np.minimum.accumulate(path)).max())


if __name__ == "__main__":
    for number in LIMITS:
        print(f"    {number}: {simulate(number)},", flush=True)  # noqa: T201
