"""Measures accuracy on labelled data sets, also that of baseline scorers, and writes reports.

>>> from anoco_edge_calibration.evaluation import EvaluationPlan
>>> from anoco_edge_calibration.evaluation.dataset import DataSet
>>> EvaluationPlan(DataSet("parts", ()), shots=(1, "full"), seeds=2).draws()
[(1, 0), (1, 1), ('full', 0)]
"""

from anoco_edge_calibration.evaluation.plan import EvaluationPlan
from anoco_edge_calibration.evaluation.runner import Evaluation, evaluate, merge
from anoco_edge_calibration.evaluation.unit import EvaluationSetup, measure_unit

__all__ = [
    "Evaluation",
    "EvaluationPlan",
    "EvaluationSetup",
    "evaluate",
    "measure_unit",
    "merge",
]
