"""What a threshold promises, in words and as a band that holds wherever it is moved."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from anoco_edge.bundle import Product
from anoco_edge.bundle.evidence import ConformalEvidence, ProvisionalEvidence
from anoco_edge.scoring.conformal import group_maxima, parts_needed
from anoco_edge.scoring.rate_band import RateBand
from anoco_edge.station.parts.part_models import Model
from anoco_edge.teaching import read_calibration_scores

ONE_PERCENT = parts_needed(0.01)
POINTS = 64


class RateAt(Model):
    """The share of good parts that a threshold rejects, at least and at most."""

    threshold: float
    false_reject_low: float
    false_reject_high: float


class Promise(Model):
    """What good parts lose at each threshold, with 90 % confidence for all thresholds at once."""

    at: list[RateAt]
    current: RateAt | None
    parts: int
    words: str
    evidence: str = Field(description="What the threshold itself rests on, in words.")
    doubts: list[str]
    more_for_one_percent: int


def calibration_maxima(product: Product) -> list[float]:
    """Return one score for each part that was held out: the highest of its pictures."""
    if product.calibration is None or product.calibration.source != "pictures":
        return []
    found = read_calibration_scores(product)
    return group_maxima([each.score for each in found], [each.part for each in found])


def promise_of(product: Product, threshold: float | None = None) -> Promise:
    """Return the promise of a product at its threshold, or at another one."""
    scores = calibration_maxima(product)
    value = product.threshold.value if threshold is None else threshold
    evidence = product.threshold.evidence
    doubts: tuple[str, ...] = getattr(evidence, "doubts", ())
    if isinstance(evidence, ConformalEvidence) and not evidence.exact and not doubts:
        doubts = ("some of the parts that calibrated are references now",)
    band = RateBand.of(scores)
    return Promise(
        at=_curve(band, value) if scores else [],
        current=_at(band, value) if scores and value is not None else None,
        parts=len(scores),
        words=_words(product, band, value, doubts),
        evidence=evidence_words(product),
        doubts=list(doubts),
        more_for_one_percent=max(ONE_PERCENT - len(scores), 0),
    )


def evidence_words(product: Product) -> str:
    """Say what the threshold of a product rests on."""
    threshold = product.threshold
    if threshold.evidence.explanation:
        return threshold.evidence.explanation
    if threshold.kind == "manual":
        return "A person set this threshold."
    if isinstance(threshold.evidence, ProvisionalEvidence):
        return (
            f"Provisional: the highest of {len(threshold.evidence.scores)} scores of references "
            f"times {threshold.evidence.margin:g}. It promises no rate."
        )
    return "There is no threshold." if threshold.value is None else "Nothing is known about it."


def _words(product: Product, band: RateBand, value: float | None, doubts: tuple[str, ...]) -> str:
    missing = max(ONE_PERCENT - len(band.scores), 0)
    more = f" Calibrate with {missing} more good parts for 1 %." if missing else ""
    if value is None:
        return "There is no threshold, so no part gets a verdict."
    if not len(band.scores):
        return f"Nothing is promised: no good parts were held out.{more}"
    if product.baseline is not None:
        more += " Scores are those over the usual energy of each place."
    if doubts:
        return f"Nothing is promised, because {'; '.join(doubts)}.{more}"
    return f"{band.words(value)}{more}"


def _at(band: RateBand, threshold: float) -> RateAt:
    low, high = band.rate(threshold)
    return RateAt(threshold=threshold, false_reject_low=low, false_reject_high=high)


def _curve(band: RateBand, value: float | None) -> list[RateAt]:
    """The band at thresholds from below the lowest score to well above the highest."""
    top = 1.5 * max(float(band.scores[-1]), value or 0.0)
    steps = np.linspace(0, top, POINTS)
    edges = band.scores[np.linspace(0, len(band.scores) - 1, POINTS).round().astype(int)]
    return [_at(band, float(each)) for each in np.unique(np.concatenate((steps, edges)))]
