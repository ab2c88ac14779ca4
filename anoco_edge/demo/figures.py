"""How many parts of each material of the demo were judged right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anoco_edge.demo.line import Shift

Auroc = Callable[[Sequence[float], Sequence[bool]], float]


@dataclass(frozen=True)
class MaterialFigures:
    """The verdicts on one material, counted, and how well scores separate good from defective."""

    material: str
    image_auroc: float
    good_passed: int
    good_rejected: int
    defective_found: int
    defective_missed: int


def material_figures(shift: Shift, auroc: Auroc) -> MaterialFigures:
    """Count the verdicts of a shift; `auroc` computes the area under the ROC curve."""
    labels = [part.defect is not None for part in shift.parts]
    return MaterialFigures(
        material=shift.material,
        image_auroc=auroc([row.score for row in shift.rows], labels),
        good_passed=shift.count(defective=False, verdict="good"),
        good_rejected=shift.count(defective=False, verdict="anomalous"),
        defective_found=shift.count(defective=True, verdict="anomalous"),
        defective_missed=shift.count(defective=True, verdict="good"),
    )
