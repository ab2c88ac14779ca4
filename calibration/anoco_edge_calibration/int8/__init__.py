"""Measures the ranges of activations for INT8, on pictures of good parts.

>>> CalibrationSet(())
Traceback (most recent call last):
anoco_edge.errors.UsageError: a calibration set has no pictures; give pictures of good parts
"""

from anoco_edge_calibration.int8.calibration_set import CalibrationSet
from anoco_edge_calibration.int8.ranges import ActivationRanges, collect_ranges

__all__ = ["ActivationRanges", "CalibrationSet", "collect_ranges"]
