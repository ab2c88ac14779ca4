"""The scores that a calibrated threshold rests on, read from a product."""

from __future__ import annotations

from typing import NamedTuple

from anoco_edge.bundle import Product
from anoco_edge.bundle.evidence import ConformalEvidence, LeaveOneOutEvidence
from anoco_edge.errors import UsageError
from anoco_edge.scoring.conformal import Conformal


class PartScore(NamedTuple):
    """The score of a picture, and the part that the picture shows."""

    picture: str
    part: str
    score: float


def read_calibration_scores(product: Product) -> list[PartScore]:
    """Return the score of every picture that the threshold of a product rests on.

    Example::

        from anoco_edge import Bundle
        from anoco_edge.teaching import read_calibration_scores

        for picture, part, score in read_calibration_scores(Bundle.open("line.anoco").product()):
            print(picture, part, score)
    """
    calibration, evidence = product.calibration, product.threshold.evidence
    if isinstance(evidence, LeaveOneOutEvidence):
        names = [r.name for r in product.references]
        return [PartScore(name, name, s) for name, s in zip(names, evidence.scores, strict=True)]
    if calibration is None:
        return []
    return [
        PartScore(p.name, p.group, p.score) for p in calibration.pictures if p.score is not None
    ]


def conformal_of(product: Product) -> Conformal:
    """Return the calibrated threshold of a product with its guarantee."""
    evidence, value = product.threshold.evidence, product.threshold.value
    if value is None or not isinstance(evidence, ConformalEvidence):
        raise UsageError(
            f"product {product.name!r} has no calibrated threshold",
            hint="calibrate it with good parts",
        )
    return Conformal(
        threshold=value,
        false_reject=evidence.false_reject,
        asked=evidence.asked,
        parts=evidence.parts,
        order=evidence.order,
        interval=evidence.interval,
    )
