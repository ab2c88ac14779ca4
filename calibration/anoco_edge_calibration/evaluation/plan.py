"""The plan of an evaluation: which categories are measured, with which draws of references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anoco_edge.errors import UsageError
from anoco_edge_calibration.evaluation.dataset import Category, DataSet
from anoco_edge_calibration.evaluation.tables import Shots
from anoco_edge_calibration.evaluation.unit import Draw, EvaluationUnit


@dataclass(frozen=True)
class EvaluationPlan:
    """A data set, the numbers of references (`shots`) to try, and how often each is drawn."""

    dataset: DataSet
    shots: Sequence[Shots] = (1,)
    seeds: int = 1

    def draws(self) -> list[Draw]:
        """Return shots and seed of every draw. "full" has one draw, since it takes all pictures."""
        return [
            (shots, seed)
            for shots in self.shots
            for seed in range(1 if shots == "full" else self.seeds)
        ]

    def units(self) -> list[EvaluationUnit]:
        """Return one unit for each category, with all its draws, so that it decodes a picture once.

        Measuring the units of `single_draws` instead gives the same rows.
        """
        measurable = [c for c in self.dataset.categories if c.has_both or c.has_masks]
        return [EvaluationUnit(self.dataset.name, c, tuple(self.draws())) for c in measurable]

    def single_draws(self) -> list[EvaluationUnit]:
        """Return the same work in the smallest units: one for each category and draw."""
        return [
            EvaluationUnit(unit.dataset, unit.category, (draw,))
            for unit in self.units()
            for draw in unit.draws
        ]

    def steps(self, variants: int) -> int:
        """Return how often `measure_unit` calls its `step` at most, over all units."""
        pictures = sum(len(category.test) for category in self.dataset.categories)
        return 2 * pictures * len(self.draws()) * variants

    def check(self) -> None:
        """Raise UsageError for a plan that cannot be carried out, before minutes of work."""
        most = max((shots for shots in self.shots if shots != "full"), default=0)
        for category in self.dataset.categories:
            if most > len(category.train):
                raise UsageError(
                    f"{most} shots were asked for, {category.name} has {len(category.train)} "
                    "training pictures",
                    hint="take fewer shots, or 'full', or leave this category out",
                )
        if not self.units():
            what = missing_kind(self.dataset.categories[0])
            raise UsageError(
                f"{self.dataset.name} cannot be measured: {what}",
                hint="test/ needs good and defective pictures",
            )


def missing_kind(category: Category) -> str:
    """Say which kind of test picture a category lacks, good or defective."""
    lacking = "good" if any(p.defect for p in category.test) else "defective"
    return f"{category.name} has no {lacking} test pictures"
