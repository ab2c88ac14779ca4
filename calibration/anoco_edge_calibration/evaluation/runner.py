"""Runs an evaluation: how well scorers find defects when they know few or all good parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anoco_edge_calibration.evaluation.plan import EvaluationPlan, missing_kind
from anoco_edge_calibration.evaluation.tables import EvaluationRow, incomplete_means, mean_rows
from anoco_edge_calibration.evaluation.unit import (
    EvaluationProblem,
    EvaluationSetup,
    Observer,
    PictureScore,
    Step,
    UnitResult,
    measure_unit,
)


@dataclass
class Evaluation:
    """The figures of an evaluation, the scores behind them, and what could not be measured."""

    rows: list[EvaluationRow] = field(default_factory=list)
    pictures: list[PictureScore] = field(default_factory=list)
    problems: list[EvaluationProblem] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def evaluate(
    plan: EvaluationPlan,
    setup: EvaluationSetup,
    step: Step = lambda _: None,
    observe: Observer = lambda _category, _variant_run: None,
) -> Evaluation:
    """Measure all units in this process, one after the other.

    `step` and `observe` are passed on to `measure_unit`.
    """
    plan.check()
    return merge(plan, [measure_unit(unit, setup, step, observe) for unit in plan.units()])


def merge(plan: EvaluationPlan, parts: Sequence[UnitResult]) -> Evaluation:
    """Put the results of a plan's units together, whatever their order and size."""
    result = Evaluation()
    for category in plan.dataset.categories:
        if not category.has_both:
            result.problems.append(EvaluationProblem(category.name, "", missing_kind(category)))
    measured = {unit.category.name: unit.category for unit in plan.units()}
    bare = [name for name, category in measured.items() if not category.has_masks]
    if bare:
        result.remarks.append(f"no pixel figures for {', '.join(bare)}: there are no masks")
    for name in measured:
        own = [part for part in parts if part.unit.category.name == name]
        own.sort(key=lambda part: plan.draws().index(part.unit.draws[0]))
        for part in own:
            result.rows += part.rows
            result.pictures += part.pictures
            result.problems += [one for one in part.problems if one not in result.problems]
        result.remarks += _copies(name, own)
    names = [category.name for category in plan.dataset.categories]
    result.remarks += incomplete_means(result.rows, names)
    result.rows += mean_rows(result.rows)
    return result


def _copies(name: str, parts: Sequence[UnitResult]) -> list[str]:
    """Remark on copies: a test picture that is also a reference makes the figures look better than
    they are, and a reference that occurs twice adds nothing."""
    tested: dict[Path, str] = {}
    taught: set[str] = set()
    for part in parts:
        tested |= part.tested
        taught |= part.taught
    remarks = []
    copies = [path for path, pixels in tested.items() if pixels in taught]
    if copies:
        share = f"{len(copies)} of {len(tested)} test pictures of {name}"
        remarks.append(f"{share} are copies of references, {copies[0]} for one")
    doubled = sum(part.doubled for part in parts)
    if doubled:
        share = f"{doubled} of {sum(len(part.unit.draws) for part in parts)} draws of {name}"
        fewer = "the bank holds fewer pictures than shots"
        remarks.append(f"{share} have references that are copies of each other: {fewer}")
    return remarks
