"""Which threshold a generation gets: by hand, from calibration, or provisional.

A calibration outlives changes of the bank: the pictures it rests on are scored again, so that bank
and threshold always belong together. Where they were not kept, the product is uncalibrated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anoco_edge.bundle import Product, Threshold
from anoco_edge.bundle.baseline import LEAST_PICTURES, BaselineGrid
from anoco_edge.bundle.checksum import sha256_bytes
from anoco_edge.bundle.schema import Baseline, Calibration, CalibrationPicture, FileRecord
from anoco_edge.conformal import Conformal, conformal_threshold, describe, group_maxima
from anoco_edge.errors import UsageError
from anoco_edge.teaching.banks import Load, Pixels
from anoco_edge.teaching.examiner import Examiner
from anoco_edge.threshold import gentle_views, held_out, provisional, rounding

LoadPicture = Callable[[CalibrationPicture], Pixels]

# What a score means depends on the first, what it is (beside the bank) on all.
MEASURED_BY = ("lam", "floor", "metric", "pooling", "tta")
SCORED_BY = (*MEASURED_BY, "views", "tiles", "region", "mask")


@dataclass(frozen=True)
class Settled:
    """The rest of a generation: threshold, what it rests on, and what a person should know."""

    threshold: Threshold
    calibration: Calibration | None = None
    baseline: Baseline | None = None
    grid: BaselineGrid | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """As fields of the product."""
        return {
            "threshold": self.threshold,
            "calibration": self.calibration,
            "baseline": self.baseline,
        }


def settle(examiner: Examiner, load: Load, load_picture: LoadPicture) -> Settled:
    """What a changed bank makes of the draft's threshold and calibration."""
    draft = examiner.draft
    if draft.calibration is None:
        if draft.threshold.kind == "manual":
            return Settled(draft.threshold)
        return Settled(provisional_threshold(examiner, load))
    if any(p.file is None for p in draft.calibration.pictures):
        return _lost(draft, "its calibration pictures were not kept, so they cannot be scored anew")
    try:
        settled = calibrated(examiner, draft.calibration, _sigmas(draft), load_picture)
    except UsageError as error:  # fewer than before: some became references, or were removed
        return _lost(draft, error.what)
    if draft.threshold.kind == "manual":
        return replace(settled, threshold=draft.threshold)
    return settled


def calibrated(
    examiner: Examiner, asked: Calibration, sigmas: float | None, load: LoadPicture
) -> Settled:
    """Score the calibration pictures, or the references against each other, and take the order
    statistic that the false-reject rate asks for."""
    if asked.source == "references":
        return _from_references(examiner, asked)
    known = {r.pixels: r.name for r in examiner.draft.references}
    pictures = [p for p in asked.pictures if p.pixels not in known]
    notes = tuple(
        f"{p.name} is a reference now and no longer calibrates"
        for p in asked.pictures
        if p.pixels in known
    )
    if not pictures:
        raise UsageError("no calibration picture is left", hint="calibrate with other pictures")
    baseline, grid, files = None, None, {}
    if sigmas is not None:
        pictures = _shared_out(pictures)
        fitted = [p for p in pictures if p.role == "baseline"]
        energies = examiner.energies(load(p) for p in fitted)
        grid = BaselineGrid.fit((found.energy for found in energies), sigmas)
        data = grid.to_bytes()
        path = f"baseline-{examiner.draft.generation}.safetensors"
        files[path] = data
        record = FileRecord(path=path, sha256=sha256_bytes(data), size=len(data))
        baseline = Baseline(file=record, sigmas=sigmas, pictures=len(fitted))
    scored = [p for p in pictures if p.role == "threshold"]
    groups = len({p.group for p in scored})
    unit = "part" if groups < len(scored) else "picture"
    _enough(groups, asked, unit)
    found = [energy.score for energy in examiner.energies((load(p) for p in scored), grid)]
    grouped = group_maxima(found, [p.group for p in scored])
    conformal = conformal_threshold(grouped, asked.false_reject, accept_fewer=asked.accept_fewer)
    scores = dict(zip([p.pixels for p in scored], found, strict=True))
    kept = tuple(p.model_copy(update={"score": scores.get(p.pixels)}) for p in pictures)
    threshold = _threshold(examiner, conformal, "held-out pictures", unit == "part")
    calibration = asked.model_copy(update={"pictures": kept})
    return Settled(threshold, calibration, baseline, grid, files, notes)


def provisional_threshold(examiner: Examiner, load: Load) -> Threshold:
    """From the references alone, until there is a calibration."""
    draft, bank = examiner.draft, examiner.bank
    if len(draft.references) > 1:
        scores = list(examiner.held_out(held_out(len(draft.references))))
        return provisional("leave-one-picture-out", scores, bank, draft)
    scores = list(examiner.variations(gentle_views(load(draft.references[0]))))
    return provisional("gentle augmentations of the only reference", scores, bank, draft)


def _from_references(examiner: Examiner, asked: Calibration) -> Settled:
    count = len(examiner.draft.references)
    if count < 2:
        raise UsageError(
            "a single reference cannot be held out", hint="give pictures of other good parts"
        )
    _enough(count, asked, "reference")
    scores = list(examiner.held_out(range(count)))
    found = conformal_threshold(scores, asked.false_reject, accept_fewer=asked.accept_fewer)
    threshold = _threshold(examiner, found, "leave-one-picture-out", False, scores)
    return Settled(threshold, asked)


def _threshold(
    examiner: Examiner,
    found: Conformal,
    method: str,
    groups: bool,
    scores: Sequence[float] = (),
) -> Threshold:
    exact = method == "held-out pictures"
    # Good parts may have no score at all: with a baseline, or where they are alike to the pixel.
    least = rounding(examiner.bank, examiner.draft)
    evidence: dict[str, Any] = {
        "method": method,
        "exact": exact,
        "asked": found.asked,
        "false_reject": found.false_reject,
        "interval": list(found.interval),
        "parts": found.parts,
        "order": found.order,
        "words": describe(found, exact=exact, groups=groups),
    }
    if scores:
        evidence["scores"] = list(scores)
    return Threshold(kind="conformal", value=max(found.threshold, least), evidence=evidence)


def _enough(parts: int, asked: Calibration, unit: str) -> None:
    """Too few show before they are scored, which may take long."""
    conformal_threshold(
        [0.0] * parts, asked.false_reject, accept_fewer=asked.accept_fewer, unit=unit
    )


def _shared_out(pictures: Sequence[CalibrationPicture]) -> list[CalibrationPicture]:
    """Every other group fits the baseline, the rest set the threshold: what sets the threshold
    must not have been seen by what it is compared with."""
    groups = list(dict.fromkeys(p.group for p in pictures))
    fitting = set(groups[::2])
    count = sum(p.group in fitting for p in pictures)
    if count < LEAST_PICTURES or len(groups) < 2:
        raise UsageError(
            f"{len(pictures)} pictures are too few for a baseline and a threshold",
            hint="half of them fit the baseline: give at least 4, of two parts or more",
        )
    return [
        p.model_copy(update={"role": "baseline" if p.group in fitting else "threshold"})
        for p in pictures
    ]


def _sigmas(draft: Product) -> float | None:
    return None if draft.baseline is None else draft.baseline.sigmas


def _lost(draft: Product, why: str) -> Settled:
    """A threshold set by hand stays, unless it was set for energies over a baseline."""
    if draft.threshold.kind == "manual" and draft.baseline is None:
        return Settled(draft.threshold, notes=(f"the calibration is gone: {why}",))
    note = f"verdicts will be 'uncalibrated': {why}; run: anoco-edge calibrate"
    return Settled(Threshold(evidence={"lost": why}), notes=(note,))
