"""Which threshold a generation gets: by hand, from calibration, or provisional.

A calibration outlives changes of the bank: the pictures it rests on are scored again, so that bank
and threshold always belong together. Where they were not kept, the product is uncalibrated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anoco_edge.bundle import Product, Threshold
from anoco_edge.bundle.baseline import LEAST_PICTURES, BaselineGrid
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
from anoco_edge.errors import PictureError, ScoringError, UsageError
from anoco_edge.pipeline.energy import PictureEnergy
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching.bank_builder import Load, Pixels
from anoco_edge.teaching.burst_detection import PartMatcher
from anoco_edge.teaching.calibration_set import Findings, found_by_likeness, references_in_doubt
from anoco_edge.teaching.draft_scorer import DraftScorer
from anoco_edge.teaching.provisional_threshold import (
    gentle_views,
    provisional,
    references_to_leave_out,
    rounding,
)

LoadPicture = Callable[[CalibrationPicture], Pixels]
Examine = Callable[[Calibration], Findings]

# Parts whose median score is below this share of the lowest score of a reference among the others
# were probably seen before. With EfficientNet-Lite0, two or four references and ten sets of parts:
# independent parts 0.31 and more (0.19 with the tiny backbone of the tests), frames of a part that
# is a reference 0.01 to 0.4 (where noise does not raise the score: on the rendered washers and
# circuits it does).
FAR_BELOW = 0.15
MOST_REFERENCES = 4  # that are scored for this

# What a score means depends on the first, what it is (beside the bank) on all.
MEASURED_BY = ("lam", "floor", "metric", "pooling", "tta", "tiles")
SCORED_BY = (*MEASURED_BY, "views", "region", "mask")


@dataclass(frozen=True)
class ThresholdUpdate:
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


def settle(
    draft_scorer: DraftScorer,
    load: Load,
    load_picture: LoadPicture,
    matcher: Callable[[], PartMatcher],
    examine: Examine,
) -> ThresholdUpdate:
    """What a changed bank makes of the draft's threshold and calibration."""
    draft = draft_scorer.draft
    manual = draft.threshold.kind == "manual"
    if draft.calibration is None:
        if manual:
            return ThresholdUpdate(draft.threshold, notes=(_by_hand(draft),))
        if (why := draft.threshold.evidence.get("lost")) is not None:
            return _lost(draft, why)  # until a calibration, or `threshold=0`
        return _doubt_references(draft, provisional_threshold(draft_scorer, load), matcher)
    if not _kept(draft.calibration):
        return _lost(draft, "its calibration pictures were not kept, so they cannot be scored anew")
    findings = examine(draft.calibration)
    try:
        plan = plan_calibration(draft, draft_scorer.patch_mask, draft.calibration, findings.copies)
    except (UsageError, PictureError) as error:  # fewer than before, or of parts of another shape
        lost = _lost(draft, error.what, _unscored(draft.calibration))
        aside = _aside(draft, draft.calibration, findings.copies)
        return replace(lost, notes=(*_aside_notes(aside), *lost.notes))
    update = calibrated(draft_scorer, plan, load_picture, findings)
    if manual:
        notes = (*update.notes, _by_hand(draft))
        return replace(update, threshold=draft.threshold, notes=notes)
    return update


def without_references(draft: Product) -> ThresholdUpdate:
    """Nothing can be inspected; what calibrates stays, for the references to come."""
    idle = "no reference is left: nothing can be inspected until good parts are enrolled"
    asked = draft.calibration
    if asked is None:
        return ThresholdUpdate(Threshold(), notes=(idle,))
    if not _kept(asked):
        gone = f"{idle}, and the calibration is gone: its pictures were not kept"
        return ThresholdUpdate(Threshold(), notes=(gone,))
    stays = f"{idle}; the threshold will then be calibrated again"
    return ThresholdUpdate(Threshold(), _unscored(asked), notes=(stays,))


def plan_calibration(
    draft: Product, patch_mask: PatchMask, asked: Calibration, copies: Collection[str] = ()
) -> Plan:
    """Parts that became references are set aside, the others get their roles. Too few show here,
    before they are scored, which may take long. `copies` are pixel hashes of pictures that look
    like references."""
    if asked.source == "references":
        if len(draft.references) < 2:
            raise UsageError(
                "a single reference cannot be held out", hint="give pictures of other good parts"
            )
        _enough(len(draft.references), asked, "reference")
        return Plan(asked)
    aside = _aside(draft, asked, copies)
    pictures = [p for p in asked.pictures if p.group not in aside]
    if not pictures:
        raise UsageError("no calibration picture is left", hint="calibrate with other pictures")
    for picture in pictures:
        patch_mask.check_size(picture.width, picture.height, picture.name)
    roles = dict.fromkeys((p.group for p in pictures), "threshold")
    if asked.sigmas is not None:
        roles = _shared_out(pictures)
    everything = tuple(
        p.model_copy(update={"role": roles.get(p.group, p.role)}) for p in asked.pictures
    )
    plan = Plan(asked.model_copy(update={"pictures": everything}), aside)
    scored = plan.pictures("threshold")
    parts = len({p.group for p in scored})
    unit = "part" if parts < len(scored) else "picture"
    try:
        _enough(parts, asked, unit, halved=asked.sigmas is not None)
    except UsageError as error:
        if not found_by_likeness(scored):
            raise
        looks = f"{len(scored)} pictures look like {parts} part{'s' if parts > 1 else ''}"
        raise UsageError(f"{looks}: {error.what}", hint=error.hint) from None
    return plan


def calibrated(
    draft_scorer: DraftScorer, plan: Plan, load: LoadPicture, findings: Findings
) -> ThresholdUpdate:
    """Score the calibration pictures, or the references against each other, and take the order
    statistic that the false-reject rate asks for."""
    asked = plan.calibration
    if asked.source == "references":
        return _from_references(draft_scorer, asked, findings)
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
    energies = _energies(draft_scorer, scored, load, grid)
    scores = {p.pixels: e.score for p, e in zip(scored, energies, strict=True)}
    pictures = tuple(p.model_copy(update={"score": scores.get(p.pixels)}) for p in asked.pictures)
    calibration = asked.model_copy(update={"pictures": pictures})
    if asked.sigmas is None:  # over a baseline, scores are on another scale than the references'
        findings = replace(findings, doubts=(*findings.doubts, *_low_scores(draft_scorer, scores)))
    threshold = threshold_of(draft_scorer, calibration, findings)
    notes = (*findings.notes, *_doubt_notes(findings), *_aside_notes(plan.aside))
    return ThresholdUpdate(threshold, calibration, baseline, grid, files, notes)


def threshold_of(
    draft_scorer: DraftScorer, calibration: Calibration, findings: Findings
) -> Threshold:
    """From the scores that its pictures have."""
    pictures = [p for p in calibration.pictures if p.score is not None]
    scored = [(p.score, p.group) for p in pictures if p.score is not None]
    parts = group_maxima([score for score, _ in scored], [group for _, group in scored])
    found = conformal_threshold(
        parts, calibration.false_reject, accept_fewer=calibration.accept_fewer
    )
    alike = len(pictures) if found_by_likeness(pictures) else 0
    grouped = len(parts) < len(scored)
    threshold = _threshold(draft_scorer, found, "held-out pictures", findings, grouped, alike)
    threshold.evidence["pictures"] = len(pictures)
    aside = _set_aside(draft_scorer.draft, calibration)
    return _chosen_from(threshold, len(aside)) if aside else threshold


def provisional_threshold(draft_scorer: DraftScorer, load: Load) -> Threshold:
    """From the references alone, until there is a calibration."""
    draft, bank = draft_scorer.draft, draft_scorer.bank
    if len(draft.references) > 1:
        scores = list(draft_scorer.leave_one_out(references_to_leave_out(len(draft.references))))
        return provisional("leave-one-picture-out", scores, bank, draft)
    scores = list(draft_scorer.variations(gentle_views(load(draft.references[0]))))
    return provisional("gentle augmentations of the only reference", scores, bank, draft)


def _from_references(
    draft_scorer: DraftScorer, asked: Calibration, findings: Findings
) -> ThresholdUpdate:
    scores = list(draft_scorer.leave_one_out(range(len(draft_scorer.draft.references))))
    found = conformal_threshold(scores, asked.false_reject, accept_fewer=asked.accept_fewer)
    threshold = _threshold(draft_scorer, found, "leave-one-picture-out", findings)
    threshold.evidence["scores"] = scores
    return ThresholdUpdate(threshold, asked, notes=_doubt_notes(findings))


def _threshold(
    draft_scorer: DraftScorer,
    found: Conformal,
    method: str,
    findings: Findings,
    groups: bool = False,
    alike: int = 0,
) -> Threshold:
    from_pictures = method == "held-out pictures"
    doubts = findings.doubts
    # Good parts may have no score at all: with a baseline, or where they are alike to the pixel.
    least = rounding(draft_scorer.bank, draft_scorer.draft)
    evidence: dict[str, Any] = {
        "method": method,
        "exact": from_pictures and not doubts,
        "asked": found.asked,
        "false_reject": found.false_reject,
        "interval": list(found.interval),
        "parts": found.parts,
        "order": found.order,
        "words": describe(found, exact=from_pictures, groups=groups, alike=alike, doubts=doubts),
        **findings.evidence(),
    }
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


def _enough(parts: int, asked: Calibration, unit: str, *, halved: bool = False) -> None:
    rate = asked.false_reject
    try:
        conformal_threshold([0.0] * parts, rate, accept_fewer=asked.accept_fewer, unit=unit)
    except UsageError as error:
        if unit == "reference":
            hint = f"calibrate with {parts_needed(rate)} pictures of other good parts, or accept "
            hint += f"{percent(best_rate(parts), up=True)} with `accept_fewer=True`"
            raise UsageError(error.what, hint=hint) from None
        if not halved:
            raise
        raise UsageError(
            f"half of the {unit}s fit the baseline; the other {error.what}",
            hint=f"give at least {2 * parts_needed(rate)} good {unit}s, or accept "
            f"{percent(best_rate(parts), up=True)} with `accept_fewer=True`",
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


def _doubt_references(
    draft: Product, threshold: Threshold, matcher: Callable[[], PartMatcher]
) -> ThresholdUpdate:
    """A provisional threshold from frames of one part knows nothing about other good parts."""
    if len(draft.references) < 2 or threshold.value is None:
        return ThresholdUpdate(threshold)
    if not matcher().references_are_one_part():
        return ThresholdUpdate(threshold)
    words = (
        f"{references_in_doubt(draft)}: the provisional threshold rests on how its pictures differ "
        "and is far too low for other good parts; teach other parts, or run: anoco-edge calibrate"
    )
    evidence = {**threshold.evidence, "words": words, "doubts": [references_in_doubt(draft)]}
    return ThresholdUpdate(threshold.model_copy(update={"evidence": evidence}), notes=(words,))


def _low_scores(draft_scorer: DraftScorer, scores: Mapping[str, float]) -> tuple[str, ...]:
    """Held-out parts that score far below the references among each other."""
    count = len(draft_scorer.draft.references)
    if count < 2:
        return ()
    chosen = np.unique(np.linspace(0, count - 1, min(count, MOST_REFERENCES)).round())
    try:
        lowest = min(draft_scorer.leave_one_out(int(number) for number in chosen))
    except UsageError:  # a thinned bank may hold patches of one reference only
        return ()
    median = float(np.median(list(scores.values())))
    if median >= FAR_BELOW * lowest:
        return ()
    return (
        f"they score far below the references among each other ({median:.3g} against {lowest:.3g} "
        "and more), as parts do that are references",
    )


def _doubt_notes(findings: Findings) -> tuple[str, ...]:
    return tuple(f"no rate is promised: {doubt}" for doubt in findings.doubts)


def _aside(
    draft: Product, calibration: Calibration, copies: Collection[str] = ()
) -> frozenset[str]:
    """Groups of which a picture is a reference, or looks like one: the others of the same part
    score too low too."""
    known = {r.pixels for r in draft.references} | set(copies)
    return frozenset(p.group for p in calibration.pictures if p.pixels in known)


def _set_aside(draft: Product, calibration: Calibration) -> frozenset[str]:
    """The same of a calibration with scores: what should have one and has none was set aside."""
    unscored = (p for p in calibration.pictures if p.role == "threshold" and p.score is None)
    return _aside(draft, calibration, {p.pixels for p in unscored})


def _aside_notes(aside: Collection[str]) -> tuple[str, ...]:
    return tuple(f"{part} is a reference now and no longer calibrates" for part in sorted(aside))


def _unscored(calibration: Calibration) -> Calibration:
    pictures = tuple(p.model_copy(update={"score": None}) for p in calibration.pictures)
    return calibration.model_copy(update={"pictures": pictures})


def _by_hand(draft: Product) -> str:
    return (
        f"the threshold {draft.threshold.value:g} was set by hand for another bank and stays; "
        "`threshold=0` computes it anew"
    )


def _lost(draft: Product, why: str, waiting: Calibration | None = None) -> ThresholdUpdate:
    """A threshold set by hand stays, unless it was set for energies over a baseline. `waiting` is
    what may calibrate again after another change."""
    if draft.threshold.kind == "manual" and draft.baseline is None:
        note = f"the calibration cannot be repeated: {why}"
        return ThresholdUpdate(draft.threshold, waiting, notes=(note, _by_hand(draft)))
    note = f"verdicts will be 'uncalibrated': {why}; run: anoco-edge calibrate"
    return ThresholdUpdate(Threshold(evidence={"lost": why}), waiting, notes=(note,))
