"""Compares settings by the scores of good parts and of the same parts with defects drawn on them.

The measure of a setting is its separation: how often a part with a drawn defect scores above
another good part, with ties counted half. It is the area under the ROC curve without the pairs of
a part and its own copy. Good scores that spread lower it, and so do defects that score low.

All settings see the same parts, so their difference is judged over parts: parts are drawn again
with replacement, and the difference of two settings must exceed its own spread over such draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]

LEVEL = 0.05  # the chance that any setting is called better where all are equal
DRAWS = 2000


@dataclass(frozen=True)
class SettingScores:
    """The scores of all parts with one setting.

    Row i of `defective` belongs to part i of `good`, one column for each drawn defect.
    """

    good: Scores = field(repr=False)
    defective: Scores = field(repr=False)
    cost: float
    """How many patches are compared for a frame. Unlike a time it is the same on every machine, so
    that a choice can be repeated."""

    @property
    def pairs(self) -> Scores:
        """For each part i and each other part j, the share of defects of i that score above j."""
        above = self.defective[:, :, None] > self.good
        equal = self.defective[:, :, None] == self.good
        wins: Scores = (above + 0.5 * equal).mean(axis=1)
        np.fill_diagonal(wins, 0)
        return wins

    @property
    def separation(self) -> float:
        """The share of pairs of a defective part and another good one that are in order.

        >>> good = np.array([1.0, 2.0])
        >>> SettingScores(good, np.array([[3.0], [0.5]]), 1.0).separation
        0.5
        """
        return float(_separations(self.pairs, np.ones((1, len(self.good))))[0])

    def of_defects(self, columns: Sequence[int]) -> SettingScores:
        """The same for some of the drawn defects."""
        return SettingScores(self.good, self.defective[:, list(columns)], self.cost)

    @property
    def spread(self) -> float:
        """The highest score of a good part over the median."""
        median = float(np.median(self.good))
        return float(self.good.max()) / median if median else math.inf


@dataclass(frozen=True)
class Difference:
    """By how much a setting separates better than another, and how much of that may be noise."""

    gain: float
    noise: float
    """The least gain that is not noise."""

    @property
    def beyond_noise(self) -> bool:
        """Whether the setting is better."""
        return self.gain > self.noise


def compare(
    better: SettingScores, than: SettingScores, *, comparisons: int = 1, seed: int = 0
) -> Difference:
    """Compare two settings over the same parts.

    `comparisons` is the number of comparisons that are made together: with more of them, some gain
    is large by chance, so each of them has to be larger.

    >>> rng = np.random.default_rng(0)
    >>> good, raised = rng.random(12), rng.random((12, 9)) + 0.4
    >>> one, other = SettingScores(good, raised, 1), SettingScores(good, raised + 0.4, 1)
    >>> compare(other, one).beyond_noise, compare(one, one).beyond_noise
    (True, False)
    """
    parts = len(than.good)
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(parts, np.full(parts, 1 / parts), size=DRAWS).astype(np.float64)
    drawn = drawn[(drawn > 0).sum(axis=1) > 1]  # one part alone makes no pair
    apart = _separations(better.pairs, drawn) - _separations(than.pairs, drawn)
    # Draws from few parts spread less than new parts would, by this factor.
    spread = float(apart.std()) * math.sqrt(parts / (parts - 1))
    noise = student_quantile(LEVEL / comparisons, parts - 1) * spread
    return Difference(better.separation - than.separation, noise)


def choose(
    settings: Sequence[SettingScores],
    present: int,
    *,
    changes: Sequence[int] | None = None,
    comparisons: int | None = None,
    seed: int = 0,
) -> int:
    """Return the number of the setting to take.

    It is the present one unless others are better beyond noise. Of those, the best one and all that
    it does not exceed beyond noise are level: the cheapest of them is taken, of equally cheap ones
    the one with the fewest `changes` to the present setting, of these the best. `comparisons` is
    the number of other settings if more are compared with the present one than these.

    >>> good = np.arange(12.0)
    >>> weak, strong = (SettingScores(good, good[:, None] + k, 1) for k in (1.0, 9.0))
    >>> choose([weak, strong], 0), choose([strong, weak], 0)
    (1, 0)
    """
    others = [k for k in range(len(settings)) if k != present]
    number = comparisons or max(len(others), 1)
    better = [
        k
        for k in others
        if compare(settings[k], settings[present], comparisons=number, seed=seed).beyond_noise
    ]
    if not better:
        return present
    best = max(better, key=lambda k: settings[k].separation)
    level = [
        k
        for k in better
        if k == best or not compare(settings[best], settings[k], seed=seed).beyond_noise
    ]
    many = changes or [0] * len(settings)
    return min(level, key=lambda k: (settings[k].cost, many[k], -settings[k].separation))


def student_quantile(tail: float, freedom: int) -> float:
    """The value that Student's t with so many degrees of freedom exceeds with this probability.

    >>> round(student_quantile(0.05, 9), 3), round(student_quantile(0.01, 7), 3)
    (1.833, 2.998)
    """
    angle = np.linspace(0, math.pi / 2, 20001)  # t = sqrt(freedom) tan(angle), a finite range
    density = np.cos(angle) ** (freedom - 1)
    area = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    inside = area / area[-1]
    found = float(np.interp(1 - 2 * tail, inside, angle))
    return math.sqrt(freedom) * math.tan(found)


def _separations(pairs: Scores, drawn: Scores) -> Scores:
    """The separation with each part counted as often as drawn, one row of `drawn` at a time."""
    total = drawn.sum(axis=1) ** 2 - (drawn**2).sum(axis=1)
    found: Scores = ((drawn @ pairs) * drawn).sum(axis=1) / total
    return found
