"""Shows what a change would do before it is made: scores that move, verdicts that flip.

`Teacher.enroll(..., commit=False)` and its siblings return a `ProductChange` that was not written.
The functions of this module compare the product before and after such a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from anoco_edge.bundle import Product
from anoco_edge.errors import AnocoError
from anoco_edge.images.decode import read_picture
from anoco_edge.teaching.product_change import ProductChange
from anoco_edge.teaching.teacher import Teacher

NOT_SCORED = "not scored"


@dataclass(frozen=True)
class Effect:
    """The score and the verdict of one picture before and after a change.

    >>> Effect("a.png", "past", 2.0, 1.0, "anomalous", "good").flips
    True
    """

    picture: str
    kind: str  # "calibration" or "past"
    score: float | None
    new_score: float | None
    verdict: str
    new_verdict: str

    @property
    def flips(self) -> bool:
        """Whether the verdict changes. A picture that is no longer scored has none to change to."""
        return self.new_verdict not in (self.verdict, NOT_SCORED)


@dataclass(frozen=True)
class PastInspection:
    """An inspection of an earlier run: where its picture is kept, and what was found."""

    number: int
    picture: Path
    name: str
    score: float
    verdict: str


def calibration_effects(change: ProductChange) -> list[Effect]:
    """Compare the scores of the calibration pictures before and after a change.

    Verdicts follow from score and threshold alone; a minimum area may still let a part pass.

    Example::

        from anoco_edge.teaching import NewPicture, Teacher, calibration_effects

        teacher = Teacher.open("line.anoco")
        change = teacher.enroll([NewPicture.from_file("parts/good0.png")], commit=False)
        print(sum(effect.flips for effect in calibration_effects(change)), "verdicts would flip")
    """
    before, after = change.before, change.product
    if before is None or before.calibration is None:
        return []
    scores = {p.pixels: p.score for p in after.calibration.pictures} if after.calibration else {}
    return [
        Effect(
            picture.name,
            "calibration",
            picture.score,
            scores.get(picture.pixels),
            _verdict(picture.score, before),
            _verdict(scores.get(picture.pixels), after),
        )
        for picture in before.calibration.pictures
        if picture.score is not None
    ]


def past_effects(
    teacher: Teacher,
    change: ProductChange,
    past: Iterable[PastInspection],
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[Effect]:
    """Inspect pictures of an earlier run again, as the product would after a change.

    A picture that cannot be inspected is left out, and `warn` is called with the reason.

    Example::

        from pathlib import Path

        from anoco_edge.teaching import NewPicture, PastInspection, Teacher, past_effects

        teacher = Teacher.open("line.anoco")
        change = teacher.enroll([NewPicture.from_file("parts/good0.png")], commit=False)
        past = [PastInspection(0, Path("parts/good1.png"), "good1.png", 0.5, "good")]
        for effect in past_effects(teacher, change, past):
            print(effect.picture, effect.verdict, "->", effect.new_verdict)
    """
    judge = teacher.judge(change.require_draft())
    for inspection in past:
        path = inspection.picture
        try:
            score, verdict = judge(read_picture(path), str(path))
        except AnocoError as error:
            warn(f"id {inspection.number} is left out: {error}")
            continue
        yield Effect(inspection.name, "past", inspection.score, score, inspection.verdict, verdict)


def _verdict(score: float | None, product: Product) -> str:
    if product.threshold.value is None:
        return "uncalibrated"
    if score is None:
        return NOT_SCORED
    return "anomalous" if score > product.threshold.value else "good"
