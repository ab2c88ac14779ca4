"""What good parts lose at any threshold: a band that holds for all thresholds at once.

A person who moves a threshold while looking at the scores chooses it by them, so a promise for one
threshold fixed beforehand does not hold for it. This band holds for every threshold at the same
time. It is the nonparametric likelihood band of Owen (JASA 90, 1995): all distributions F with
K(F_n(t), F(t)) <= level for every t, where K is the Kullback-Leibler divergence of two Bernoulli
distributions. Its level is exact for every n, and it is narrow in the tail, where a threshold
lies: of 100 scores the highest is exceeded by at most 4.6 % of good parts, after Dvoretzky, Kiefer
and Wolfowitz by 12.3 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anoco_edge.scoring.conformal import SHARE, checked_scores, percent

Values = NDArray[np.float64]


@dataclass(frozen=True)
class RateBand:
    """The share of good parts above any threshold, from the scores of held-out good parts."""

    scores: Values
    low: Values
    """low[k] to high[k] is the share of good parts above a threshold with k scores below it."""
    high: Values
    share: float

    @staticmethod
    def of(scores: ArrayLike, share: float = SHARE) -> RateBand:
        """Compute the band that contains the whole curve in at least `share` of calibrations.

        >>> band = RateBand.of(range(1, 101))
        >>> low, high = band.rate(100.5)
        >>> low, round(high, 3)
        (0.0, 0.045)
        """
        values = np.sort(checked_scores(scores))
        low, high = distribution_band(len(values), share)
        return RateBand(values, 1 - high, 1 - low, share)

    def rate(self, threshold: float) -> tuple[float, float]:
        """Return the lowest and the highest share of good parts that a threshold may reject."""
        below = int(np.searchsorted(self.scores, threshold, side="right"))
        return float(self.low[below]), float(self.high[below])

    def words(self, threshold: float) -> str:
        """Say what a threshold promises, in one sentence.

        >>> print(RateBand.of(range(1, 101)).words(100.5))
        With 90 % confidence at most 4.6 % of good parts are rejected, wherever the threshold is \
moved (100 good parts, held out).
        """
        low, high = self.rate(threshold)
        between = f"at most {percent(high, up=True)}"
        if low > 0:
            between = f"between {percent(low)} and {percent(high, up=True)}"
        return (
            f"With {percent(self.share)} confidence {between} of good parts are rejected, wherever "
            f"the threshold is moved ({len(self.scores)} good parts, held out)."
        )


def distribution_band(n: int, share: float = SHARE) -> tuple[Values, Values]:
    """Return lower and upper bounds of a distribution function where k of n scores lie below.

    Both have n + 1 entries, for k from 0 to n.

    >>> low, high = distribution_band(2, 0.9)
    >>> float(low[0]), bool(low[1] < 0.5 < high[1]), float(high[2])
    (0.0, True, 1.0)
    """
    return _bounds(n, _level(n, share)) if n else (np.zeros(1), np.ones(1))


@lru_cache(maxsize=64)
def _level(n: int, share: float) -> float:
    """Find the level whose band has exactly this coverage, by bisection."""
    low, high = 0.0, 1.0
    while coverage(*_bounds(n, high)) < share:
        low, high = high, 2 * high
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        if coverage(*_bounds(n, middle)) < share:
            low = middle
        else:
            high = middle
    return high


def _bounds(n: int, level: float) -> tuple[Values, Values]:
    """Solve K(k/n, p) = level for p below and above k/n, for all k at once."""
    mean = np.arange(n + 1) / n
    lower = _solve(mean, np.zeros(n + 1), mean, level)
    return lower, 1 - lower[::-1]  # the divergence is the same from the other end


def _solve(mean: Values, outside: Values, inside: Values, level: float) -> Values:
    outside, inside = outside.copy(), inside.copy()
    for _ in range(60):
        middle = (outside + inside) / 2
        far = _divergence(mean, middle) > level
        outside, inside = np.where(far, middle, outside), np.where(far, inside, middle)
    return inside if mean[0] else np.concatenate(([0.0], inside[1:]))


def _divergence(mean: Values, rate: Values) -> Values:
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.where(mean > 0, mean * np.log(mean / rate), 0.0)
        other = np.where(mean < 1, (1 - mean) * np.log((1 - mean) / (1 - rate)), 0.0)
    return one + other


def coverage(low: Values, high: Values) -> float:
    """Return the probability that a continuous distribution lies in a band everywhere.

    The k-th smallest of n uniform numbers must lie in [low[k], high[k - 1]]. Counted at every
    bound, the numbers below form a binomial process; it is a Poisson process under the condition
    that n come in all, whose steps are independent (Moscovich and Nadler, 2017).

    >>> round(coverage(np.array([0.0, 0.2]), np.array([0.9, 1.0])), 12)
    0.7
    """
    n = len(low) - 1
    times = np.unique(np.concatenate((low[1:], high[:-1], [1.0])))
    least = np.searchsorted(high[:-1], times, side="right")  # that must lie below by then
    most = np.searchsorted(low[1:], times, side="left")  # that may lie below by then
    chance, first, before = np.ones(1), 0, 0.0
    for time, fewest, mostly in zip(times, least, most, strict=True):
        mean = n * (time - before)
        chance = np.convolve(chance, _poisson(mean, n))
        begin, end = max(int(fewest), first), min(int(mostly), n)
        if end < begin:
            return 0.0
        chance = chance[begin - first : end - first + 1]
        first, before = begin, float(time)
        if not len(chance):
            return 0.0
    at_end = n - first
    whole = math.exp(n * math.log(n) - n - math.lgamma(n + 1))
    return float(chance[at_end]) / whole if at_end < len(chance) else 0.0


def _poisson(mean: float, most: int) -> Values:
    """Return the chances of 0, 1, ... events, as far as they matter."""
    count = min(most, int(mean + 12 * math.sqrt(mean) + 30))
    k = np.arange(count + 1)
    chances: Values = (k == 0).astype(np.float64)
    if mean > 0:
        chances = np.exp(k * math.log(mean) - mean - _log_factorials(count + 1))
    return chances


@lru_cache(maxsize=512)
def _log_factorials(count: int) -> Values:
    return np.array([math.lgamma(k + 1) for k in range(count)])
