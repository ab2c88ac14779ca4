"""Split conformal calibration: a threshold from the scores of held-out good parts.

Its false-reject rate is bounded for any distribution of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anoco_edge.errors import ScoringError, UsageError

SHARE = 0.9  # of calibrations have a true rate inside the interval


@dataclass(frozen=True)
class Conformal:
    """A threshold, and the share of good parts that it rejects (those with score > threshold).

    `false_reject` is (n + 1 - k) / (n + 1), the mean rate over calibrations of n parts. It is exact
    for scores without ties and an upper bound with them. The rate of a single calibration varies:
    it follows Beta(n + 1 - k, k), and `interval` holds the middle 90 % of that distribution.
    """

    threshold: float
    false_reject: float
    asked: float
    parts: int
    order: int
    interval: tuple[float, float]


def best_rate(parts: int) -> float:
    """The lowest false-reject rate that this number of held-out parts can support.

    >>> best_rate(4)
    0.2
    """
    return 1 / (parts + 1)


def parts_needed(rate: float) -> int:
    """The least number of held-out parts that a false-reject rate needs.

    >>> parts_needed(0.01), parts_needed(0.3)
    (99, 3)
    """
    return math.ceil(1 / _exact(rate)) - 1


def conformal_threshold(
    scores: ArrayLike, rate: float, *, accept_fewer: bool = False, unit: str = "picture"
) -> Conformal:
    """Take the k-th smallest score as threshold, with k = ceil((n + 1)(1 - rate)).

    The next good part takes each of the n + 1 ranks among the scores with the same probability, so
    it lies above the k-th in at most n + 1 - k of n + 1 cases. `accept_fewer` accepts the best rate
    that too few parts support. `unit` is the word for a score in messages ("part", if pictures are
    grouped).

    >>> found = conformal_threshold([3.0, 1.0, 2.0, 5.0, 4.0, 6.0, 8.0, 7.0, 9.0], 0.3)
    >>> found.threshold, found.order, found.false_reject
    (7.0, 7, 0.3)
    """
    values = checked_scores(scores)
    n = len(values)
    order = math.ceil((n + 1) * (1 - _exact(rate)))
    if n == 0 or (order > n and not accept_fewer):
        raise _too_few(n, rate, unit)
    order = min(order, n)
    return Conformal(
        threshold=float(np.partition(values, order - 1)[order - 1]),
        false_reject=(n + 1 - order) / (n + 1),
        asked=float(rate),
        parts=n,
        order=order,
        interval=beta_interval(n + 1 - order, order),
    )


def score_range(scores: ArrayLike, found: Conformal) -> tuple[float, float]:
    """The scores between which the threshold lies that rejects exactly `found.false_reject`.

    They are the order statistics at the ends of `found.interval`, rounded outwards, so the range
    holds that threshold in about 90 % of calibrations. An end beyond the outermost score is open:
    0 or infinity.

    >>> scores = list(range(1, 100))
    >>> score_range(scores, conformal_threshold(scores, 0.1))
    (84.0, 95.0)
    >>> score_range(scores, conformal_threshold(scores, 0.01))
    (97.0, inf)
    """
    values = np.sort(checked_scores(scores))
    n = len(values)
    low = math.floor((n + 1) * (1 - found.interval[1]))
    high = math.ceil((n + 1) * (1 - found.interval[0]))
    return (
        float(values[low - 1]) if low >= 1 else 0.0,
        float(values[high - 1]) if high <= n else math.inf,
    )


def beta_interval(a: int, b: int, share: float = SHARE) -> tuple[float, float]:
    """The middle `share` of Beta(a, b), with equal tails, for whole a and b.

    >>> low, high = beta_interval(1, 99)
    >>> round(low, 6), round(high, 6)
    (0.000518, 0.029807)
    """
    if a < 1 or b < 1 or not 0 < share < 1:
        raise UsageError(
            f"Beta({a}, {b}) has no interval of share {share}",
            hint="give a and b of at least 1 and a share between 0 and 1",
        )
    tail = (1 - share) / 2
    return _lower_quantile(a, b, tail), 1 - _lower_quantile(b, a, tail)


def _lower_quantile(a: int, b: int, tail: float) -> float:
    """Find x with I_x(a, b) = tail by bisection, as I_x(a, b) = P(at least a of a + b - 1 hits)."""
    n = a + b - 1
    log_factorial = np.array([math.lgamma(k + 1) for k in range(n + 1)])
    hits = np.arange(a, n + 1)
    log_ways = log_factorial[n] - log_factorial[a:] - log_factorial[n - hits]
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        log_terms = log_ways + hits * math.log(middle) + (n - hits) * math.log1p(-middle)
        peak = float(log_terms.max())  # factored out: the terms themselves may underflow
        if peak + math.log(float(np.exp(log_terms - peak).sum())) < math.log(tail):
            low = middle
        else:
            high = middle
    return high


def group_maxima(scores: Sequence[float], groups: Sequence[str]) -> list[float]:
    """The highest score of each part, with the parts in the order in which they first appear.

    Pictures of one part resemble each other, so counting them as independent breaks the bound.
    Parts are independent, and a part is rejected as soon as one of its pictures is. So the bound
    holds for parts when each one has the highest score of its pictures.

    >>> group_maxima([1.0, 5.0, 3.0], ["a", "b", "a"])
    [3.0, 5.0]
    """
    if len(scores) != len(groups):
        raise UsageError(
            f"{len(scores)} scores but {len(groups)} groups", hint="give one group for each score"
        )
    highest: dict[str, float] = {}
    for score, group in zip(checked_scores(scores).tolist(), groups, strict=True):
        highest[group] = max(score, highest.get(group, score))
    return list(highest.values())


def checked_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """The scores as an array of float64; NaN, infinity and negative scores are refused.

    >>> checked_scores([1, 2])
    array([1., 2.])
    """
    values = np.asarray(scores, dtype=np.float64).reshape(-1)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        raise ScoringError(
            f"score {wrong[0] + 1} of {len(values)} is {values[wrong[0]]:g}",
            hint="scores are finite and not negative: look at the picture and the bundle",
        )
    return values


def percent(rate: float, *, up: bool = False) -> str:
    """Write a rate in percent; `up` rounds up, so that "at most" stays true.

    >>> percent(0.00051), percent(0.0298), percent(0.01), percent(0.2)
    ('0.05 %', '3.0 %', '1 %', '20 %')
    >>> percent(1 / 12), percent(1 / 12, up=True), percent(0.07, up=True), percent(0.0000123)
    ('8.3 %', '8.4 %', '7 %', '0.001 %')
    """
    value = 100 * rate
    decimals = 1 if value >= 1 else 2
    if 0 < value < 0.01:
        decimals = -math.floor(math.log10(value))
    scaled = value * 10**decimals
    # The tolerance is for products such as 100 * 0.07, which are slightly too large.
    whole = math.ceil(scaled - 1e-9) if up else round(scaled)
    text = f"{whole / 10**decimals:.{decimals}f}"
    if abs(whole - scaled) < 1e-9:  # a figure that was not rounded is written without zeros
        text = text.rstrip("0").rstrip(".")
    return f"{text} %"


def describe(
    found: Conformal,
    *,
    exact: bool,
    groups: bool = False,
    alike: int = 0,
    doubts: Sequence[str] = (),
) -> str:
    """Say in words what the threshold promises.

    `exact` is True for held-out parts; references that are scored against each other give no exact
    promise. `alike` is the number of pictures, where the parts were found by comparing them.
    `doubts` say why there may be fewer parts than it seems; then nothing is promised.

    >>> found = conformal_threshold(list(range(99)), 0.01)
    >>> print(describe(found, exact=True).partition(". For")[0])
    99 good parts, held out. At most 1 % of good parts are rejected on average over such \
calibrations (1 of 100)
    """
    bound = percent(found.false_reject, up=True)
    parts = _plural(found.parts, "good part" if exact else "reference")
    parts += ", held out" if exact else ", scored against each other"
    if groups:
        parts += ", each judged by the highest score of its pictures"
    if alike:
        parts += f" ({alike} pictures look like {_plural(found.parts, 'part')})"
    if found.false_reject > found.asked:
        asked = _in_full(found.asked)
        parts = f"Only {parts}: that supports {bound} at best, {asked} was asked"
    if not exact:
        return (
            f"{parts}{_doubted(doubts)}. There is no exact guarantee: each reference meets one "
            "reference less than a part on the line will, and the scores are not independent. If "
            f"they counted as held out, at most {bound} of good parts would be rejected on "
            "average. For a rate that holds, calibrate with held-out pictures of good parts."
        )
    if doubts:
        return (
            f"{parts}{_doubted(doubts)}. There is no guarantee: only if every one of them is "
            f"another part, at most {bound} of good parts are rejected on average. For a rate that "
            "holds, calibrate with pictures of parts that were each put in place for it."
        )
    low, high = found.interval
    return (
        f"{parts}. At most {bound} of good parts are rejected on average over such calibrations "
        f"({found.parts + 1 - found.order} of {found.parts + 1}). For this one calibration the "
        f"true rate lies with {percent(SHARE)} probability between {percent(low)} and "
        f"{percent(high)}. This holds as long as parts, light and camera stay as they were in "
        "these pictures."
    )


def _doubted(doubts: Sequence[str]) -> str:
    return f", but {', and '.join(doubts)}" if doubts else ""


def _exact(rate: float) -> Fraction:
    """The rate as a person wrote it: 0.01 is one hundredth and not the nearest float."""
    if not 0 < rate < 1:
        raise UsageError(
            f"a false-reject rate of {rate} is not possible",
            hint="give a number between 0 and 1, such as 0.01 for 1 %",
        )
    return Fraction(repr(float(rate)))


def _too_few(n: int, rate: float, unit: str) -> UsageError:
    needed = _plural(parts_needed(rate), f"good {unit}")
    if n == 0:
        return UsageError(f"there is no {unit} to calibrate with", hint=f"give at least {needed}")
    best = percent(best_rate(n), up=True)
    support = "supports" if n == 1 else "support"
    return UsageError(
        f"{_plural(n, unit)} {support} a false-reject rate of {best} at best, "
        f"{_in_full(rate)} was asked",
        hint=f"give at least {needed}, or accept {best} with `accept_fewer=True`",
    )


def _plural(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _in_full(rate: float) -> str:
    """Write a requested rate without rounding, so that it does not look equal to the best one."""
    return f"{100 * rate:.12g} %"
