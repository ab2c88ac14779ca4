"""How well scorers find defects on a data set, taught with few or all of its good parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anoco_edge.errors import UsageError
from anoco_edge_calibration.evaluation.dataset import Category, DataSet
from anoco_edge_calibration.evaluation.tables import Row, Shots, incomplete_means, mean_rows
from anoco_edge_calibration.evaluation.unit import (
    Contest,
    Draw,
    Look,
    Measured,
    PictureScore,
    Problem,
    Step,
    Unit,
    measure,
)


@dataclass(frozen=True)
class Plan:
    """Which units there are: every category, taught so often with so many references."""

    dataset: DataSet
    shots: Sequence[Shots] = (1,)
    seeds: int = 1

    def draws(self) -> list[Draw]:
        """Shots and seed of every draw; all pictures can be drawn in one way only."""
        return [
            (shots, seed)
            for shots in self.shots
            for seed in range(1 if shots == "full" else self.seeds)
        ]

    def units(self) -> list[Unit]:
        """One a category, with all its draws: so a picture is decoded once. Measuring one draw at
        a time (`single_draws`) gives the same rows."""
        measurable = [c for c in self.dataset.categories if c.has_both or c.has_masks]
        return [Unit(self.dataset.name, c, tuple(self.draws())) for c in measurable]

    def single_draws(self) -> list[Unit]:
        """The same work in the smallest pieces."""
        return [
            Unit(unit.dataset, unit.category, (draw,))
            for unit in self.units()
            for draw in unit.draws
        ]

    def steps(self, variants: int) -> int:
        """How often `measure` will call its `step` at most, over all units."""
        pictures = sum(len(category.test) for category in self.dataset.categories)
        return 2 * pictures * len(self.draws()) * variants

    def check(self) -> None:
        """Refuse what cannot be done, before minutes of work."""
        most = max((shots for shots in self.shots if shots != "full"), default=0)
        for category in self.dataset.categories:
            if most > len(category.train):
                raise UsageError(
                    f"{most} shots were asked for, {category.name} has {len(category.train)} "
                    "training pictures",
                    hint="give fewer --shots, or 'full', or leave it out with --categories",
                )
        if not self.units():
            what = _lacking(self.dataset.categories[0])
            raise UsageError(
                f"{self.dataset.name} cannot be measured: {what}",
                hint="test/ needs good and defective pictures",
            )


@dataclass
class Evaluation:
    """Figures, the scores behind them, what is missing from them and why."""

    rows: list[Row] = field(default_factory=list)
    pictures: list[PictureScore] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def evaluate(
    plan: Plan,
    contest: Contest,
    step: Step = lambda _: None,
    look: Look = lambda _category, _entrant: None,
) -> Evaluation:
    """Measure all units here, one after the other; `step` and `look` are `measure`'s."""
    plan.check()
    return merge(plan, [measure(unit, contest, step, look) for unit in plan.units()])


def merge(plan: Plan, parts: Sequence[Measured]) -> Evaluation:
    """One evaluation from the units of a plan, in whatever order and size they were measured."""
    result = Evaluation()
    for category in plan.dataset.categories:
        if not category.has_both:
            result.problems.append(Problem(category.name, "", _lacking(category)))
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


def _lacking(category: Category) -> str:
    lacking = "good" if any(p.defect for p in category.test) else "defective"
    return f"{category.name} has no {lacking} test pictures"


def _copies(name: str, parts: Sequence[Measured]) -> list[str]:
    """A known picture flatters the figures, a doubled reference teaches nothing."""
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
