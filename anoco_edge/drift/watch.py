"""Notice from the scores of good parts that light or camera have moved since calibration.

Each part that scores below the threshold takes a rank among the calibration scores below it. As
long as nothing has moved, every rank is as likely as any other, whatever the distribution of the
scores. Only what lies below the threshold is compared, on both sides: the parts called good are
selected by the threshold, so the calibration scores are selected in the same way. (Given the
threshold, which may be one of the calibration scores, those below it are as independent as before.)

Two sums (CUSUM) follow the ranks, one for scores that rise and one for scores that fall. A sum
grows with ranks that are further out than its allowance, and starts at 0 again when they are not. A
warning comes when a sum reaches its limit, and is over when that sum is back at 0. The module
`limits` has the numbers, and explains why they hold although all ranks are taken among the same few
scores.

Where no part is good for a while there is nothing to compare, and the watch reports that it is
blind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anoco_edge.bundle.evidence import ConformalEvidence
from anoco_edge.bundle.schema import Product
from anoco_edge.drift.limits import (
    FALSE_ALARMS,
    HORIZON,
    LEAST_SCORES,
    allowance,
    limit,
    rank_scores,
)
from anoco_edge.drift.readings import DriftReading, DriftSummary, DriftWarning, State
from anoco_edge.errors import UsageError
from anoco_edge.scoring.conformal import percent

BLIND = 50  # after so many parts in a row of which none was good the watch calls itself blind
_DIRECTIONS: tuple[tuple[State, float], ...] = (("higher", 1.0), ("lower", -1.0))


class DriftWatch:
    """Follows the rows of a run, in their order, and warns when their scores have moved.

    >>> rng = np.random.default_rng(0)
    >>> watch = DriftWatch(rng.random(60), threshold=2.0)
    >>> for number in range(200):  # from the hundredth part on everything scores higher
    ...     score = rng.random() + (0.5 if number >= 100 else 0.0)
    ...     reading = watch.update(number, "good", score)
    >>> reading.state, watch.warned.since
    ('higher', 100)
    """

    def __init__(self, scores: Sequence[float] | np.ndarray, threshold: float) -> None:
        below = np.asarray([score for score in scores if score < threshold], np.float64)
        if (why := _too_few(len(below))) is not None:
            raise UsageError(
                f"a drift watch is not possible: {why}", hint="calibrate with more parts"
            )
        # Equal scores are put in a random order, once for calibration and once for each part;
        # otherwise the ranks would not be those of the urn in `limits`. The generator is seeded, so
        # that a run can be repeated.
        self._rng = np.random.default_rng(0)
        chance = self._rng.random(len(below))
        order = np.lexsort((chance, below))
        self._scores, self._chance = below[order], chance[order]
        self._threshold = threshold
        self._steps = rank_scores(len(below))
        self._allowance = allowance(len(below))
        self._limit = limit(len(below))
        self.watched = 0
        self.warnings = 0
        self.warned: DriftWarning | None = None  # the latest warning
        self.reset()

    @staticmethod
    def of(product: Product, threshold: float | None) -> DriftWatch | None:
        """Make the watch of a product that is judged by this threshold.

        The result is None where the product cannot be watched; `why_off` gives the reason.
        """
        if threshold is None or why_off(product, threshold) is not None:
            return None
        return DriftWatch(calibration_scores(product), threshold)

    def reset(self) -> None:
        """Start the sums at 0, after what had moved was put right; the counts stay."""
        self.state: State = "steady"
        self._before: State = "steady"
        self._unseen = 0
        self._last_seen = 0
        self._sums = {state: 0.0 for state, _ in _DIRECTIONS}
        self._began: dict[State, int] = {}
        self._age = 0

    def update(self, number: int, verdict: str | None, score: float | None) -> DriftReading:
        """Take the next row of a run into account, and return its reading.

        `number` is the id of the row. A picture that could not be inspected has neither verdict
        nor score, and changes nothing.
        """
        if verdict == "good" and score is not None and score < self._threshold:
            if self.state == "blind":
                self.state = self._before
            self._unseen = 0
            self._follow(number, float(score))
        elif verdict == "anomalous":
            self._miss(number)
        return DriftReading(self.state, round(max(self._sums.values()) / self._limit, 3))

    def summary(self) -> DriftSummary:
        """Return what the watch has counted so far."""
        return DriftSummary(self.state, self.watched, self.warnings, self.warned)

    def _miss(self, number: int) -> None:
        if self._unseen == 0:
            self._last_seen = number
        self._unseen += 1
        if self._unseen == BLIND:
            self._before, self.state = self.state, "blind"
            self._warn(number, self._last_seen)

    def _warn(self, number: int, since: int) -> None:
        self.warnings += 1
        self.warned = DriftWarning(self.state, number, since)

    def _follow(self, number: int, score: float) -> None:
        self.watched += 1
        self._age += 1
        step = float(self._steps[self._rank(score)])
        for state, sign in _DIRECTIONS:
            # The sum never exceeds its limit, so that after a long disturbance it takes as few good
            # parts to come back as after a short one.
            moved = self._sums[state] + sign * step - self._allowance
            self._sums[state] = min(max(0.0, moved), self._limit)
            if self._sums[state] == 0:
                self._began.pop(state, None)
                if self.state == state:
                    self.state = "steady"
                continue
            began = self._began.setdefault(state, number)
            if self._sums[state] == self._limit and self.state != state:
                self.state = state
                self._warn(number, began)
        if self._age >= HORIZON and self.state == "steady":
            self.reset()

    def _rank(self, score: float) -> int:
        first, last = (int(np.searchsorted(self._scores, score, s)) for s in ("left", "right"))
        return first + int(np.searchsorted(self._chance[first:last], self._rng.random()))


def calibration_scores(product: Product) -> list[float]:
    """Return one score for each part that was held out for calibration.

    Where a part has several pictures, one of them is picked by the hash of its pixels, which is as
    good as chance. On the line one picture comes at a time, so it must not be compared with the
    highest score of a part's pictures, on which the threshold rests. (Then what the module says
    about the threshold holds nearly, because the threshold also rests on the other pictures.)
    """
    held = product.calibration.pictures if product.calibration else ()
    picked = {p.group: p for p in sorted(held, key=lambda p: p.pixels) if p.score is not None}
    return [p.score for p in picked.values() if p.score is not None]


def why_off(product: Product, threshold: float | None) -> str | None:
    """Say why the product cannot be watched; None where it can."""
    if threshold is None:
        return "there is no threshold"
    scores = calibration_scores(product)
    if not scores:
        return "it was not calibrated with held-out parts"
    return _too_few(sum(score < threshold for score in scores))


def promise(product: Product) -> str:
    """State the false-alarm rate in words."""
    rate = f"at most {percent(FALSE_ALARMS)} of undisturbed runs of {HORIZON:,} good parts warn"
    evidence = product.threshold.evidence
    if isinstance(evidence, ConformalEvidence) and not evidence.exact:
        return f"{rate}, if the parts that calibrated were still a fair sample"
    return rate


def _too_few(below: int) -> str | None:
    if below >= LEAST_SCORES:
        return None
    return f"only {below} calibration scores lie below the threshold, {LEAST_SCORES} are needed"
