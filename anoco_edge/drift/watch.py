"""Have light or camera moved since calibration? The scores of good parts tell.

Each part that scores below the threshold takes a rank among the calibration scores below it. As
long as nothing has moved every rank is as likely as any other, whatever the scores' distribution.
Only what lies below the threshold is compared, on both sides: parts called good are a choice, and
the calibration scores below the threshold are the same choice. (Given the threshold, which may be
one of the calibration scores, those below it are as independent as before.)

Two sums (CUSUM) follow the ranks, one for scores that rise and one for scores that fall. A sum
grows with ranks that are further out than its allowance, and starts at 0 again when they are not. A
warning comes when one reaches its limit, and is over when that sum is back at 0. `limits` has the
numbers, and why they hold although all ranks are taken among the same few scores.

Where no part is good for a while there is nothing to compare; the watch says that it is blind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
from anoco_edge.errors import UsageError
from anoco_edge.scoring.conformal import percent

State = Literal["steady", "higher", "lower", "blind"]
BLIND = 50  # parts in a row of which none was good: there is nothing to compare any more
_DIRECTIONS: tuple[tuple[State, float], ...] = (("higher", 1.0), ("lower", -1.0))


@dataclass(frozen=True)
class DriftWarning:
    """Scores of good parts have moved."""

    state: State
    row: int
    """The `id` of the row at which it was noticed."""
    since: int
    """The `id` of the row since which the sum has not been 0: about where it began."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"state": self.state, "id": self.row, "since": self.since}

    def __str__(self) -> str:
        if self.state == "blind":
            return (
                f"no part was good since row {self.since}, so there is nothing to compare with "
                "calibration: if these parts are good, light or camera have moved"
            )
        return (
            f"good parts score {self.state} than in calibration since about row {self.since} "
            f"(noticed at row {self.row}): light, camera or parts have changed; put it right, or "
            "calibrate again"
        )


class DriftWatch:
    """Follows the rows of a run, in their order.

    >>> rng = np.random.default_rng(0)
    >>> watch = DriftWatch(rng.random(60), threshold=2.0)
    >>> for number in range(200):  # from the hundredth part on everything scores higher
    ...     score = rng.random() + (0.5 if number >= 100 else 0.0)
    ...     state = watch.update({"id": number, "verdict": "good", "score": score})
    >>> state["state"], watch.warned.since
    ('higher', 100)
    """

    def __init__(self, scores: Sequence[float] | np.ndarray, threshold: float) -> None:
        below = np.asarray([score for score in scores if score < threshold], np.float64)
        if (why := _too_few(len(below))) is not None:
            raise UsageError(
                f"a drift watch is not possible: {why}", hint="calibrate with more parts"
            )
        # Equal scores are put in an order by chance, once for calibration and once for each part:
        # without it the ranks would not be the urn's. Seeded, so that a run can be repeated.
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
        self.warned: DriftWarning | None = None
        """The latest one."""
        self.reset()

    @staticmethod
    def of(product: Product, threshold: float | None) -> DriftWatch | None:
        """For a product that is judged by this threshold; None where `why_off` says why."""
        if threshold is None or why_off(product, threshold) is not None:
            return None
        return DriftWatch(calibration_scores(product), threshold)

    def reset(self) -> None:
        """Begin anew, after what had moved was put right; what was counted stays."""
        self.state: State = "steady"
        self._before: State = "steady"
        self._unseen = 0
        self._last_seen = 0
        self._sums = {state: 0.0 for state, _ in _DIRECTIONS}
        self._began: dict[State, int] = {}
        self._age = 0

    def update(self, row: dict[str, Any]) -> dict[str, Any]:
        """One row of a run; gives its `drift` field: the state, and how near a warning is (1)."""
        if row["verdict"] == "good" and row["score"] < self._threshold:
            if self.state == "blind":
                self.state = self._before
            self._unseen = 0
            self._follow(row["id"], float(row["score"]))
        elif row["verdict"] == "anomalous":
            self._miss(row["id"])
        return {"state": self.state, "level": round(max(self._sums.values()) / self._limit, 3)}

    def to_dict(self) -> dict[str, Any]:
        """For the summary."""
        return {
            "state": self.state,
            "watched": self.watched,
            "warnings": self.warnings,
            "latest": self.warned.to_dict() if self.warned else None,
        }

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
            # Held at the limit: however long it was bad, it takes as few good parts to come back.
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
    """One score a part that was held out; of several pictures of a part, one picked by chance.

    What comes by on the line is one picture at a time, so the highest of a part's pictures, which
    the threshold rests on, is not what it compares with. The hash of the pixels is the chance.
    (Then what is said above of the threshold holds nearly: it rests on the pictures beside, too.)
    """
    held = product.calibration.pictures if product.calibration else ()
    picked = {p.group: p for p in sorted(held, key=lambda p: p.pixels) if p.score is not None}
    return [p.score for p in picked.values() if p.score is not None]


def why_off(product: Product, threshold: float | None) -> str | None:
    """Why the product cannot be watched; None where it can."""
    if threshold is None:
        return "there is no threshold"
    scores = calibration_scores(product)
    if not scores:
        return "it was not calibrated with held-out parts"
    return _too_few(sum(score < threshold for score in scores))


def promise(product: Product) -> str:
    """The false-alarm rate in words."""
    rate = f"at most {percent(FALSE_ALARMS)} of undisturbed runs of {HORIZON:,} good parts warn"
    evidence = product.threshold.evidence
    if isinstance(evidence, ConformalEvidence) and not evidence.exact:
        return f"{rate}, if the parts that calibrated were still a fair sample"
    return rate


def _too_few(below: int) -> str | None:
    if below >= LEAST_SCORES:
        return None
    return f"only {below} calibration scores lie below the threshold, {LEAST_SCORES} are needed"
