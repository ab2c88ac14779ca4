"""What a change would have done to the last parts, and on how many pictures that rests.

A threshold alone is arithmetic: the score of a part is its stored ratio times the threshold of its
generation. Anything else needs the stored pictures, which are those that the retention kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from anoco_edge.bundle import Bundle, Product
from anoco_edge.errors import AnocoError
from anoco_edge.images.decode import read_picture
from anoco_edge.line.judge.alignment import Pixels
from anoco_edge.station.parts.captures import CapturePlace
from anoco_edge.station.parts.history import History
from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.products.changes import ChangeOutcome

MOST_FLIPS = 500
_PAST = """
SELECT p.uid, c.verdict, c.ratio, c.generation, c.picture FROM part p
JOIN capture c ON c.uid = p.uid AND c.number = ?
WHERE p.product = ? AND p.accepted = 1 AND p.verdict IN ('good', 'anomalous')
ORDER BY p.at DESC, p.rowid DESC LIMIT ?
"""
_NO_SCORE = {
    *("checksum", "generation", "parent", "changed", "change", "threshold", "calibration", "bank"),
    *("tuning", "picture_limits", "augmentation_choice"),
}
"""The fields of a product that no score depends on, and the bank, whose content is compared."""
Opinion = tuple[float, str]
"""A ratio, and a verdict."""
JudgePicture = Callable[[Pixels, str], Opinion | None]
"""Judges a picture; None where the part is not found in it."""


@dataclass(frozen=True)
class PastCapture:
    """A picture of an earlier part as it was judged then."""

    uid: str
    verdict: str
    ratio: float
    generation: int
    picture: str | None


class Flip(Model):
    """A part that would get another verdict."""

    uid: str
    number: int
    verdict: str
    ratio: float
    new_verdict: str
    new_ratio: float
    picture: bool


class LeftOut(Model):
    """Parts that say nothing about a change, and why."""

    reason: str
    parts: int


class DryRun(Model):
    """What a change would do: to the product, and to the last parts."""

    outcome: ChangeOutcome
    method: str
    """`arithmetic` on stored ratios, or `inspection` of stored pictures."""
    parts: int
    """How many of the last parts were asked about."""
    compared: int
    """How many of them the answer rests on."""
    left_out: list[LeftOut]
    before: dict[str, int]
    after: dict[str, int]
    flips: list[Flip]
    more_flips: int
    words: str


def past_captures(history: History, number: int, capture: int, last: int) -> list[PastCapture]:
    """Return the last parts of a product that were judged, the newest first."""
    with history.reading() as data:
        rows = data.execute(_PAST, (capture, number, last)).fetchall()
    return [
        PastCapture(uid, verdict, ratio, generation or 0, picture)
        for uid, verdict, ratio, generation, picture in rows
        if verdict is not None and ratio is not None
    ]


class Comparison:
    """Collects what a change does to parts, one after the other."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.flips: list[Flip] = []
        self.before: Counter[str] = Counter()
        self.after: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()

    def add(self, past: PastCapture, before: Opinion, after: Opinion) -> None:
        """Note a part that was judged before and after."""
        self.before[before[1]] += 1
        self.after[after[1]] += 1
        if before[1] != after[1]:
            self.flips.append(
                Flip(
                    uid=past.uid,
                    number=self._number,
                    verdict=before[1],
                    ratio=before[0],
                    new_verdict=after[1],
                    new_ratio=after[0],
                    picture=past.picture is not None,
                )
            )

    def dry_run(self, outcome: ChangeOutcome, method: str, note: str = "") -> DryRun:
        """Return all of it."""
        compared, left = self.before.total(), self.left_out.total()
        source = "stored ratios" if method == "arithmetic" else "stored pictures"
        words = f"{len(self.flips)} of {compared} parts would get another verdict ({source}"
        words += f"; {left} of the last {compared + left} say nothing)." if left else ")."
        if method == "inspection":
            words += " Few pictures of good parts are stored: most are near the threshold."
        return DryRun(
            outcome=outcome,
            method=method,
            parts=compared + left,
            compared=compared,
            left_out=[LeftOut(reason=why, parts=n) for why, n in self.left_out.items()],
            before=dict(self.before),
            after=dict(self.after),
            flips=self.flips[:MOST_FLIPS],
            more_flips=max(len(self.flips) - MOST_FLIPS, 0),
            words=f"{words}{note}",
        )


def score_settings(product: Product) -> tuple[object, str | None]:
    """Return all that a score depends on, to compare the scores of two generations."""
    fields = product.model_dump(exclude=_NO_SCORE)
    return fields, product.bank.sha256 if product.bank else None


def compare_thresholds(
    past: Iterable[PastCapture],
    generations: Mapping[int, Product],
    current: Product,
    value: float,
    number: int,
) -> Comparison:
    """Judge parts by their stored ratios at the current threshold and at another one."""
    found = Comparison(number)
    now = current.threshold.value
    wanted = score_settings(current)
    known = {g: score_settings(p) == wanted for g, p in generations.items()}
    for part in past:
        then = generations.get(part.generation)
        if then is None or then.threshold.value is None:
            found.left_out["its generation is not in the bundle any more"] += 1
        elif not known[part.generation]:
            found.left_out["it was judged by other references or settings"] += 1
        elif now is None:
            found.left_out["there is no threshold"] += 1
        else:
            score = part.ratio * then.threshold.value
            found.add(part, _at(score, now), _at(score, value))
    return found


def _at(score: float, threshold: float) -> Opinion:
    return score / threshold, "anomalous" if score > threshold else "good"


def threshold_note(product: Product) -> str:
    """Say where arithmetic on scores is not exactly what the judge would decide."""
    if product.min_area > 0 or product.pooling == "top5":
        return " A part with small regions alone may be decided otherwise."
    return ""


def compare_pictures(
    past: Iterable[PastCapture],
    folder: Path,
    generation: int,
    before: JudgePicture,
    after: JudgePicture,
    number: int,
    tick: Callable[[int], None],
) -> Comparison:
    """Inspect stored pictures again, as the current generation and as a new one would.

    A part that the current generation judged is not inspected by it again.
    """
    found = Comparison(number)
    for count, part in enumerate(past):
        tick(count)
        if part.picture is None:
            found.left_out["its picture was not kept"] += 1
            continue
        try:
            pixels = read_picture(folder / part.picture)
            new = after(pixels, part.uid)
            old: Opinion | None = (part.ratio, part.verdict)
            if part.generation != generation:
                old = before(pixels, part.uid)
        except AnocoError:
            found.left_out["its picture cannot be inspected"] += 1
            continue
        if new is None or old is None:
            found.left_out["it is not found in its picture"] += 1
            continue
        found.add(part, old, new)
    return found


def all_generations(place: CapturePlace, bundle: Bundle) -> dict[int, Product]:
    """Return every generation of a capture's product that was not pruned, by its number."""
    current = place.require_product(bundle)
    found = {product.generation: product for product in bundle.generations(current.name)}
    return found | {current.generation: current}
