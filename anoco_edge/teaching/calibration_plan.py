"""Plans a calibration before anything is scored: which pictures take part, in which role.

Scoring may take long, so everything that can be refused is refused here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from anoco_edge.bundle import Product
from anoco_edge.bundle.baseline import LEAST_PICTURES
from anoco_edge.bundle.schema import Calibration, CalibrationPicture
from anoco_edge.errors import UsageError
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.scoring.conformal import best_rate, conformal_threshold, parts_needed, percent
from anoco_edge.teaching.calibration_set import groups_were_detected


@dataclass(frozen=True)
class ThresholdPlan:
    """A calibration that can be carried out: every picture has its role."""

    calibration: Calibration
    set_aside: frozenset[str] = frozenset()
    """Groups that take no part, because a picture of the same part is a reference now."""

    def pictures(self, role: str) -> list[CalibrationPicture]:
        """The pictures that take part in this role."""
        return [
            p for p in self.calibration.pictures if p.group not in self.set_aside and p.role == role
        ]


def plan_calibration(
    draft: Product, patch_mask: PatchMask, asked: Calibration, copies: Collection[str] = ()
) -> ThresholdPlan:
    """Set aside parts that became references, and give the other pictures their roles.

    `copies` are the pixel hashes of pictures that look like references. Too few pictures for the
    rate are an error.
    """
    if asked.source == "references":
        if len(draft.references) < 2:
            raise UsageError(
                "a single reference cannot be held out", hint="give pictures of other good parts"
            )
        _check_enough(len(draft.references), asked, "reference")
        return ThresholdPlan(asked)
    set_aside = groups_among_references(draft, asked, copies)
    pictures = [p for p in asked.pictures if p.group not in set_aside and p.role != "choice"]
    if not pictures:
        raise UsageError("no calibration picture is left", hint="calibrate with other pictures")
    for picture in asked.pictures:
        if picture.group in set_aside:
            continue
        patch_mask.check_size(picture.width, picture.height, picture.name)
    roles = dict.fromkeys((p.group for p in pictures), "threshold")
    if asked.sigmas is not None:
        roles = _split_roles(pictures)
    everything = tuple(
        p.model_copy(update={"role": roles.get(p.group, p.role)}) for p in asked.pictures
    )
    plan = ThresholdPlan(asked.model_copy(update={"pictures": everything}), set_aside)
    _check_parts(plan)
    return plan


def groups_among_references(
    draft: Product, calibration: Calibration, copies: Collection[str] = ()
) -> frozenset[str]:
    """The groups of which a picture is a reference, or looks like one. The other pictures of such a
    part score too low as well, so the whole group does not calibrate."""
    known = {r.pixels for r in draft.references} | set(copies)
    return frozenset(p.group for p in calibration.pictures if p.pixels in known)


def _check_parts(plan: ThresholdPlan) -> None:
    """Refuse too few parts in the words of the plan: parts, or pictures that look like parts."""
    asked, scored = plan.calibration, plan.pictures("threshold")
    parts = len({p.group for p in scored})
    unit = "part" if parts < len(scored) else "picture"
    try:
        _check_enough(parts, asked, unit, halved=asked.sigmas is not None)
    except UsageError as error:
        if not groups_were_detected(scored):
            raise
        looks = f"{len(scored)} pictures look like {parts} part{'s' if parts > 1 else ''}"
        raise UsageError(f"{looks}: {error.what}", hint=error.hint) from None


def _check_enough(parts: int, asked: Calibration, unit: str, *, halved: bool = False) -> None:
    """Refuse too few parts for the rate; `halved` says that others of them fit a baseline."""
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


def _split_roles(pictures: Sequence[CalibrationPicture]) -> dict[str, str]:
    """Give each group its role: every other group fits the baseline, the rest set the threshold.

    No part has both roles, because a part that fitted the baseline would score too low over it.
    """
    groups = list(dict.fromkeys(p.group for p in pictures))
    fitting = set(groups[::2])
    count = sum(p.group in fitting for p in pictures)
    if count < LEAST_PICTURES or len(groups) < 2:
        raise UsageError(
            f"{len(pictures)} pictures are too few for a baseline and a threshold",
            hint="half of them fit the baseline: give at least 3, of two parts or more",
        )
    return {group: "baseline" if group in fitting else "threshold" for group in groups}
