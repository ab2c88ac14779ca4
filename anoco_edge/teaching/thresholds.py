"""Which threshold a generation gets: by hand, from calibration, or provisional.

A calibration outlives changes of the bank: the pictures it rests on are scored again, so that bank
and threshold always belong together. Where they were not kept, the product is uncalibrated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anoco_edge.bundle import Product, Threshold
from anoco_edge.bundle.baseline import LEAST_PICTURES, BaselineGrid
from anoco_edge.bundle.checksum import sha256_bytes
from anoco_edge.bundle.schema import Baseline, Calibration, CalibrationPicture, FileRecord
from anoco_edge.conformal import (
    Conformal,
    best_rate,
    conformal_threshold,
    describe,
    group_maxima,
    parts_needed,
    percent,
)
from anoco_edge.energy import PictureEnergy
from anoco_edge.errors import PictureError, ScoringError, UsageError
from anoco_edge.geometry import Geometry
from anoco_edge.teaching.banks import Load, Pixels
from anoco_edge.teaching.examiner import Examiner
from anoco_edge.threshold import gentle_views, held_out, provisional, rounding

LoadPicture = Callable[[CalibrationPicture], Pixels]

# What a score means depends on the first, what it is (beside the bank) on all.
MEASURED_BY = ("lam", "floor", "metric", "pooling", "tta", "tiles")
SCORED_BY = (*MEASURED_BY, "views", "region", "mask")


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


@dataclass(frozen=True)
class Plan:
    """A calibration that can be carried out: every picture with its role, but for those set aside
    because a picture of the same part is a reference now."""

    calibration: Calibration
    aside: frozenset[str] = frozenset()
    """Groups."""

    def pictures(self, role: str) -> list[CalibrationPicture]:
        """Those that take part, in this role."""
        return [
            p for p in self.calibration.pictures if p.group not in self.aside and p.role == role
        ]


def settle(examiner: Examiner, load: Load, load_picture: LoadPicture) -> Settled:
    """What a changed bank makes of the draft's threshold and calibration."""
    draft = examiner.draft
    manual = draft.threshold.kind == "manual"
    if draft.calibration is None:
        if manual:
            return Settled(draft.threshold, notes=(_by_hand(draft),))
        if (why := draft.threshold.evidence.get("lost")) is not None:
            return _lost(draft, why)  # until `calibrate`, or --threshold 0
        return Settled(provisional_threshold(examiner, load))
    if not _kept(draft.calibration):
        return _lost(draft, "its calibration pictures were not kept, so they cannot be scored anew")
    try:
        plan = plan_calibration(draft, examiner.geometry, draft.calibration)
    except (UsageError, PictureError) as error:  # fewer than before, or of parts of another shape
        lost = _lost(draft, error.what, _unscored(draft.calibration))
        return replace(lost, notes=(*_aside_notes(draft, draft.calibration), *lost.notes))
    settled = calibrated(examiner, plan, load_picture)
    if manual:
        notes = (*settled.notes, _by_hand(draft))
        return replace(settled, threshold=draft.threshold, notes=notes)
    return settled


def without_references(draft: Product) -> Settled:
    """Nothing can be inspected; what calibrates stays, for the references to come."""
    idle = "no reference is left: nothing can be inspected until good parts are enrolled"
    asked = draft.calibration
    if asked is None:
        return Settled(Threshold(), notes=(idle,))
    if not _kept(asked):
        gone = f"{idle}, and the calibration is gone: its pictures were not kept"
        return Settled(Threshold(), notes=(gone,))
    stays = f"{idle}; the threshold will then be calibrated again"
    return Settled(Threshold(), _unscored(asked), notes=(stays,))


def plan_calibration(draft: Product, geometry: Geometry, asked: Calibration) -> Plan:
    """Parts that became references are set aside, the others get their roles. Too few show here,
    before they are scored, which may take long."""
    if asked.source == "references":
        if len(draft.references) < 2:
            raise UsageError(
                "a single reference cannot be held out", hint="give pictures of other good parts"
            )
        _enough(len(draft.references), asked, "reference")
        return Plan(asked)
    aside = _aside(draft, asked)
    pictures = [p for p in asked.pictures if p.group not in aside]
    if not pictures:
        raise UsageError("no calibration picture is left", hint="calibrate with other pictures")
    for picture in pictures:
        geometry.check_size(picture.width, picture.height, picture.name)
    roles = dict.fromkeys((p.group for p in pictures), "threshold")
    if asked.sigmas is not None:
        roles = _shared_out(pictures)
    everything = tuple(
        p.model_copy(update={"role": roles.get(p.group, p.role)}) for p in asked.pictures
    )
    plan = Plan(asked.model_copy(update={"pictures": everything}), aside)
    scored = [p.group for p in plan.pictures("threshold")]
    unit = "part" if len(set(scored)) < len(scored) else "picture"
    _enough(len(set(scored)), asked, unit, halved=asked.sigmas is not None)
    return plan


def calibrated(examiner: Examiner, plan: Plan, load: LoadPicture) -> Settled:
    """Score the calibration pictures, or the references against each other, and take the order
    statistic that the false-reject rate asks for."""
    asked = plan.calibration
    if asked.source == "references":
        return _from_references(examiner, asked)
    baseline, grid, files = None, None, {}
    if asked.sigmas is not None:
        fitted = plan.pictures("baseline")
        energies = _energies(examiner, fitted, load, None)
        grid = BaselineGrid.fit((found.energy for found in energies), asked.sigmas)
        data = grid.to_bytes()
        path = f"baseline-{examiner.draft.generation}.safetensors"
        files[path] = data
        record = FileRecord(path=path, sha256=sha256_bytes(data), size=len(data))
        baseline = Baseline(file=record, sigmas=asked.sigmas, pictures=len(fitted))
    scored = plan.pictures("threshold")
    energies = _energies(examiner, scored, load, grid)
    scores = {p.pixels: e.score for p, e in zip(scored, energies, strict=True)}
    pictures = tuple(p.model_copy(update={"score": scores.get(p.pixels)}) for p in asked.pictures)
    calibration = asked.model_copy(update={"pictures": pictures})
    threshold = threshold_of(examiner, calibration)
    notes = _aside_notes(examiner.draft, calibration)
    return Settled(threshold, calibration, baseline, grid, files, notes)


def threshold_of(examiner: Examiner, calibration: Calibration) -> Threshold:
    """From the scores that its pictures have."""
    scored = [(p.score, p.group) for p in calibration.pictures if p.score is not None]
    parts = group_maxima([score for score, _ in scored], [group for _, group in scored])
    found = conformal_threshold(
        parts, calibration.false_reject, accept_fewer=calibration.accept_fewer
    )
    threshold = _threshold(examiner, found, "held-out pictures", len(parts) < len(scored))
    aside = _aside(examiner.draft, calibration)
    return _chosen_from(threshold, len(aside)) if aside else threshold


def provisional_threshold(examiner: Examiner, load: Load) -> Threshold:
    """From the references alone, until there is a calibration."""
    draft, bank = examiner.draft, examiner.bank
    if len(draft.references) > 1:
        scores = list(examiner.held_out(held_out(len(draft.references))))
        return provisional("leave-one-picture-out", scores, bank, draft)
    scores = list(examiner.variations(gentle_views(load(draft.references[0]))))
    return provisional("gentle augmentations of the only reference", scores, bank, draft)


def _from_references(examiner: Examiner, asked: Calibration) -> Settled:
    scores = list(examiner.held_out(range(len(examiner.draft.references))))
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


def _chosen_from(threshold: Threshold, taken: int) -> Threshold:
    """Which parts became references was a choice, and often of the worst: those left are no longer
    a fair sample."""
    words = (
        f"{threshold.evidence['words']} But {taken} of the parts that calibrated became "
        f"reference{'s' if taken > 1 else ''} since, so this no longer holds exactly: calibrate "
        "again with other parts."
    )
    evidence = {**threshold.evidence, "exact": False, "words": words}
    return threshold.model_copy(update={"evidence": evidence})


def _energies(
    examiner: Examiner,
    pictures: Sequence[CalibrationPicture],
    load: LoadPicture,
    baseline: BaselineGrid | None,
) -> Iterator[PictureEnergy]:
    energies = examiner.energies((load(p) for p in pictures), baseline)
    for picture in pictures:
        try:
            yield next(energies)
        except ScoringError as error:
            what = f"{picture.name} cannot be scored: {error.what}"
            raise ScoringError(what, hint=error.hint) from None


def _enough(parts: int, asked: Calibration, unit: str, *, halved: bool = False) -> None:
    rate = asked.false_reject
    try:
        conformal_threshold([0.0] * parts, rate, accept_fewer=asked.accept_fewer, unit=unit)
    except UsageError as error:
        if unit == "reference":
            hint = f"calibrate with {parts_needed(rate)} pictures of other good parts, or accept "
            hint += f"{percent(best_rate(parts), up=True)} with --accept-fewer"
            raise UsageError(error.what, hint=hint) from None
        if not halved:
            raise
        raise UsageError(
            f"half of the {unit}s fit the baseline; the other {error.what}",
            hint=f"give at least {2 * parts_needed(rate)} good {unit}s, or accept "
            f"{percent(best_rate(parts), up=True)} with --accept-fewer",
        ) from None


def _shared_out(pictures: Sequence[CalibrationPicture]) -> dict[str, str]:
    """The role of each group. Every other one fits the baseline, the rest set the threshold: what
    sets the threshold must not have been seen by what it is compared with."""
    groups = list(dict.fromkeys(p.group for p in pictures))
    fitting = set(groups[::2])
    count = sum(p.group in fitting for p in pictures)
    if count < LEAST_PICTURES or len(groups) < 2:
        raise UsageError(
            f"{len(pictures)} pictures are too few for a baseline and a threshold",
            hint="half of them fit the baseline: give at least 3, of two parts or more",
        )
    return {group: "baseline" if group in fitting else "threshold" for group in groups}


def _kept(calibration: Calibration) -> bool:
    return all(p.file is not None for p in calibration.pictures)


def _aside(draft: Product, calibration: Calibration) -> frozenset[str]:
    """Groups of which a picture is a reference: the others of the same part score too low too."""
    known = {r.pixels for r in draft.references}
    return frozenset(p.group for p in calibration.pictures if p.pixels in known)


def _aside_notes(draft: Product, calibration: Calibration) -> tuple[str, ...]:
    parts = sorted(_aside(draft, calibration))
    return tuple(f"{part} is a reference now and no longer calibrates" for part in parts)


def _unscored(calibration: Calibration) -> Calibration:
    pictures = tuple(p.model_copy(update={"score": None}) for p in calibration.pictures)
    return calibration.model_copy(update={"pictures": pictures})


def _by_hand(draft: Product) -> str:
    return (
        f"the threshold {draft.threshold.value:g} was set by hand for another bank and stays; "
        "--threshold 0 computes it anew"
    )


def _lost(draft: Product, why: str, waiting: Calibration | None = None) -> Settled:
    """A threshold set by hand stays, unless it was set for energies over a baseline. `waiting` is
    what may calibrate again after another change."""
    if draft.threshold.kind == "manual" and draft.baseline is None:
        note = f"the calibration cannot be repeated: {why}"
        return Settled(draft.threshold, waiting, notes=(note, _by_hand(draft)))
    note = f"verdicts will be 'uncalibrated': {why}; run: anoco-edge calibrate"
    return Settled(Threshold(evidence={"lost": why}), waiting, notes=(note,))
