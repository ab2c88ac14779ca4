"""Decides which threshold a generation gets: set by hand, calibrated, or provisional.

A calibration stays valid when the bank changes: the pictures it rests on are scored again, so that
bank and threshold always belong together. Where those pictures were not kept, the product becomes
uncalibrated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from anoco_edge.bundle import Product, Threshold
from anoco_edge.bundle.baseline import BaselineGrid
from anoco_edge.bundle.evidence import (
    HeldOutEvidence,
    LeaveOneOutEvidence,
    LostCalibrationEvidence,
    ProvisionalEvidence,
)
from anoco_edge.bundle.schema import Baseline, Calibration, CalibrationPicture, FileRecord
from anoco_edge.errors import PictureError, ScoringError, UsageError
from anoco_edge.pipeline.energy import PictureEnergy
from anoco_edge.pipeline.picture_quality import likeness
from anoco_edge.scoring.conformal import Conformal, conformal_threshold, describe, group_maxima
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching.bank_builder import Load, Pixels
from anoco_edge.teaching.burst_detection import PartMatcher
from anoco_edge.teaching.calibration_plan import (
    ThresholdPlan,
    groups_among_references,
    plan_calibration,
)
from anoco_edge.teaching.calibration_set import (
    CalibrationFindings,
    groups_were_detected,
    references_in_doubt,
)
from anoco_edge.teaching.draft_scorer import DraftScorer
from anoco_edge.teaching.provisional_threshold import provisional_threshold, rounding_limit

LoadPicture = Callable[[CalibrationPicture], Pixels]
Examine = Callable[[Calibration], CalibrationFindings]

# Parts whose median score is below this share of the lowest score of a reference among the others
# were probably references before. With EfficientNet-Lite0, two or four references and ten sets of
# parts: independent parts 0.31 and more (0.19 with the tiny backbone of the tests), frames of a
# part that is a reference 0.01 to 0.4 (where noise does not raise the score: on the rendered
# washers and circuits it does).
FAR_BELOW = 0.15
MOST_REFERENCES = 4  # references that are scored for this comparison


@dataclass(frozen=True)
class ThresholdUpdate:
    """A new threshold, what it rests on, and what a person should know about it."""

    threshold: Threshold
    calibration: Calibration | None = None
    baseline: Baseline | None = None
    grid: BaselineGrid | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    likeness: tuple[float, ...] = ()
    """How like the references the pictures were that set the threshold."""

    def recorded_in(self, product: Product) -> Product:
        """The product with this threshold, its calibration and its baseline."""
        return product.model_copy(
            update={
                "threshold": self.threshold,
                "calibration": self.calibration,
                "baseline": self.baseline,
            }
        )


def update_threshold(
    draft_scorer: DraftScorer,
    load: Load,
    load_picture: LoadPicture,
    matcher: Callable[[], PartMatcher],
    examine: Examine,
) -> ThresholdUpdate:
    """Compute the threshold of a draft whose bank has changed.

    A threshold set by hand stays. A calibration is repeated with the new bank. Without one, the
    threshold is provisional.
    """
    draft = draft_scorer.draft
    manual = draft.threshold.kind == "manual"
    if draft.calibration is None:
        if manual:
            return ThresholdUpdate(draft.threshold, notes=(_manual_note(draft),))
        if isinstance(draft.threshold.evidence, LostCalibrationEvidence):
            # It stays lost until `calibrate`, or until a person asks for a computed threshold.
            return _lost(draft, draft.threshold.evidence.lost)
        return _doubt_references(draft, provisional_threshold(draft_scorer, load), matcher)
    if not _pictures_were_kept(draft.calibration):
        return _lost(
            draft, "its calibration pictures were not kept, so they cannot be scored again"
        )
    findings = examine(draft.calibration)
    try:
        plan = plan_calibration(draft, draft_scorer.patch_mask, draft.calibration, findings.copies)
    except (UsageError, PictureError) as error:  # fewer than before, or of parts of another shape
        lost = _lost(draft, error.what, _without_scores(draft.calibration))
        set_aside = groups_among_references(draft, draft.calibration, findings.copies)
        return replace(lost, notes=(*_set_aside_notes(set_aside), *lost.notes))
    update = calibrate_threshold(draft_scorer, plan, load_picture, findings)
    if manual:
        notes = (*update.notes, _manual_note(draft))
        return replace(update, threshold=draft.threshold, notes=notes)
    return update


def without_references(draft: Product) -> ThresholdUpdate:
    """The update for a product that has no reference left.

    Nothing can be inspected. A calibration whose pictures were kept stays, for the next references.
    """
    idle = "no reference is left: nothing can be inspected until good parts are enrolled"
    asked = draft.calibration
    if asked is None:
        return ThresholdUpdate(Threshold(), notes=(idle,))
    if not _pictures_were_kept(asked):
        gone = f"{idle}, and the calibration is gone: its pictures were not kept"
        return ThresholdUpdate(Threshold(), notes=(gone,))
    stays = f"{idle}; the threshold will then be calibrated again"
    return ThresholdUpdate(Threshold(), _without_scores(asked), notes=(stays,))


def calibrate_threshold(
    draft_scorer: DraftScorer,
    plan: ThresholdPlan,
    load: LoadPicture,
    findings: CalibrationFindings,
) -> ThresholdUpdate:
    """Score the calibration pictures, or the references against each other, and take the order
    statistic that the false-reject rate asks for."""
    asked = plan.calibration
    if asked.source == "references":
        return _calibrate_with_references(draft_scorer, asked, findings)
    baseline, grid, files = None, None, {}
    if asked.sigmas is not None:
        fitted = plan.pictures("baseline")
        energies = _energies(draft_scorer, fitted, load, None)
        grid = BaselineGrid.fit((found.energy for found in energies), asked.sigmas)
        data = grid.to_bytes()
        path = f"baseline-{draft_scorer.draft.generation}.safetensors"
        files[path] = data
        record = FileRecord(path=path, sha256=sha256_bytes(data), size=len(data))
        baseline = Baseline(file=record, sigmas=asked.sigmas, pictures=len(fitted))
    scored = plan.pictures("threshold")
    read = list(_energies(draft_scorer, scored, load, grid))
    scores = {p.pixels: e.score for p, e in zip(scored, read, strict=True)}
    alike = tuple(likeness(e.similarity, e.scored) for e in read)
    pictures = tuple(p.model_copy(update={"score": scores.get(p.pixels)}) for p in asked.pictures)
    calibration = asked.model_copy(update={"pictures": pictures})
    # Scores over a baseline cannot be compared with those of the references.
    if asked.sigmas is None:
        low = _low_score_doubts(draft_scorer, scores)
        findings = replace(findings, doubts=(*findings.doubts, *low))
    threshold = threshold_from_pictures(draft_scorer, calibration, findings)
    notes = (*findings.notes, *_doubt_notes(findings), *_set_aside_notes(plan.set_aside))
    return ThresholdUpdate(threshold, calibration, baseline, grid, files, notes, alike)


def threshold_from_pictures(
    draft_scorer: DraftScorer, calibration: Calibration, findings: CalibrationFindings
) -> Threshold:
    """Compute the threshold from the scores that the pictures of a calibration have."""
    pictures = [p for p in calibration.pictures if p.score is not None]
    scored = [(p.score, p.group) for p in pictures if p.score is not None]
    parts = group_maxima([score for score, _ in scored], [group for _, group in scored])
    found = conformal_threshold(
        parts, calibration.false_reject, accept_fewer=calibration.accept_fewer
    )
    alike = len(pictures) if groups_were_detected(pictures) else 0
    grouped = len(parts) < len(scored)
    exact, doubts = not findings.doubts, findings.doubts
    words = describe(found, exact=True, groups=grouped, alike=alike, doubts=doubts)
    if set_aside := _groups_without_score(draft_scorer.draft, calibration):
        exact, words = False, f"{words} {_unfair_sample(len(set_aside))}"
    evidence = HeldOutEvidence(
        method="held-out pictures",
        exact=exact,
        asked=found.asked,
        false_reject=found.false_reject,
        interval=found.interval,
        parts=found.parts,
        order=found.order,
        words=words,
        doubts=doubts,
        parts_found=findings.parts_found,
        pictures=len(pictures),
    )
    return _threshold(draft_scorer, found, evidence)


def _calibrate_with_references(
    draft_scorer: DraftScorer, asked: Calibration, findings: CalibrationFindings
) -> ThresholdUpdate:
    scores = list(draft_scorer.leave_one_out(range(len(draft_scorer.draft.references))))
    found = conformal_threshold(scores, asked.false_reject, accept_fewer=asked.accept_fewer)
    evidence = LeaveOneOutEvidence(
        method="leave-one-picture-out",
        exact=False,
        asked=found.asked,
        false_reject=found.false_reject,
        interval=found.interval,
        parts=found.parts,
        order=found.order,
        words=describe(found, exact=False, doubts=findings.doubts),
        doubts=findings.doubts,
        scores=tuple(scores),
    )
    threshold = _threshold(draft_scorer, found, evidence)
    return ThresholdUpdate(threshold, asked, notes=_doubt_notes(findings))


def _threshold(
    draft_scorer: DraftScorer, found: Conformal, evidence: HeldOutEvidence | LeaveOneOutEvidence
) -> Threshold:
    # Good parts may have a score of zero: with a baseline, or where their pictures are equal. A
    # threshold must be above zero.
    least = rounding_limit(draft_scorer.bank, draft_scorer.draft)
    return Threshold(kind="conformal", value=max(found.threshold, least), evidence=evidence)


def _unfair_sample(taken: int) -> str:
    """The text for calibrations of which parts became references. Somebody chose those parts, often
    the worst ones, so the parts that are left are no longer a fair sample."""
    return (
        f"But {taken} of the parts that calibrated became "
        f"reference{'s' if taken > 1 else ''} since, so this no longer holds exactly: calibrate "
        "again with other parts."
    )


def _energies(
    draft_scorer: DraftScorer,
    pictures: Sequence[CalibrationPicture],
    load: LoadPicture,
    baseline: BaselineGrid | None,
) -> Iterator[PictureEnergy]:
    energies = draft_scorer.energies((load(p) for p in pictures), baseline)
    for picture in pictures:
        try:
            yield next(energies)
        except ScoringError as error:
            what = f"{picture.name} cannot be scored: {error.what}"
            raise ScoringError(what, hint=error.hint) from None


def _pictures_were_kept(calibration: Calibration) -> bool:
    return all(p.file is not None for p in calibration.pictures)


def _doubt_references(
    draft: Product, threshold: Threshold, matcher: Callable[[], PartMatcher]
) -> ThresholdUpdate:
    """Add a warning to a provisional threshold whose references all show one part: it says nothing
    about how much other good parts differ."""
    evidence = threshold.evidence
    if len(draft.references) < 2 or not isinstance(evidence, ProvisionalEvidence):
        return ThresholdUpdate(threshold)
    if not matcher().references_are_one_part():
        return ThresholdUpdate(threshold)
    words = (
        f"{references_in_doubt(draft)}: the provisional threshold rests on how its pictures differ "
        "and is far too low for other good parts; teach other parts, or run: anoco-edge calibrate"
    )
    doubted = evidence.model_copy(update={"words": words, "doubts": (references_in_doubt(draft),)})
    return ThresholdUpdate(threshold.model_copy(update={"evidence": doubted}), notes=(words,))


def _low_score_doubts(draft_scorer: DraftScorer, scores: Mapping[str, float]) -> tuple[str, ...]:
    """A doubt where the held-out parts score far below the references among each other."""
    count = len(draft_scorer.draft.references)
    if count < 2:
        return ()
    spaced = np.unique(np.linspace(0, count - 1, min(count, MOST_REFERENCES)).round())
    try:
        lowest = min(draft_scorer.leave_one_out(int(number) for number in spaced))
    except UsageError:  # a thinned bank may hold patches of one reference only
        return ()
    median = float(np.median(list(scores.values())))
    if median >= FAR_BELOW * lowest:
        return ()
    return (
        f"they score far below the references among each other ({median:.3g} against {lowest:.3g} "
        "and more), as parts do that are references",
    )


def _doubt_notes(findings: CalibrationFindings) -> tuple[str, ...]:
    return tuple(f"no rate is promised: {doubt}" for doubt in findings.doubts)


def _groups_without_score(draft: Product, calibration: Calibration) -> frozenset[str]:
    """The groups that were set aside when the calibration was scored: a picture that sets the
    threshold and has no score was left out because it looked like a reference."""
    unscored = (p for p in calibration.pictures if p.role == "threshold" and p.score is None)
    return groups_among_references(draft, calibration, {p.pixels for p in unscored})


def _set_aside_notes(groups: Collection[str]) -> tuple[str, ...]:
    return tuple(f"{part} is a reference now and no longer calibrates" for part in sorted(groups))


def _without_scores(calibration: Calibration) -> Calibration:
    pictures = tuple(p.model_copy(update={"score": None}) for p in calibration.pictures)
    return calibration.model_copy(update={"pictures": pictures})


def _manual_note(draft: Product) -> str:
    return (
        f"the threshold {draft.threshold.value:g} was set by hand for another bank and stays; "
        "`threshold=0` computes it"
    )


def _lost(draft: Product, why: str, waiting: Calibration | None = None) -> ThresholdUpdate:
    """The update for a calibration that cannot be repeated.

    A threshold set by hand stays, unless it was set for energies over a baseline. `waiting` is the
    calibration that may be repeated after another change.
    """
    if draft.threshold.kind == "manual" and draft.baseline is None:
        note = f"the calibration cannot be repeated: {why}"
        return ThresholdUpdate(draft.threshold, waiting, notes=(note, _manual_note(draft)))
    note = f"verdicts will be 'uncalibrated': {why}; run: anoco-edge calibrate"
    uncalibrated = Threshold(evidence=LostCalibrationEvidence(lost=why))
    return ThresholdUpdate(uncalibrated, waiting, notes=(note,))
