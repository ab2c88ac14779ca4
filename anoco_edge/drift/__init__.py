"""The drift watch, which warns when light or camera have moved since calibration."""

from anoco_edge.drift.readings import DriftReading, DriftSummary, DriftWarning
from anoco_edge.drift.watch import DriftWatch, promise, why_off

__all__ = [
    "DriftReading",
    "DriftSummary",
    "DriftWarning",
    "DriftWatch",
    "promise",
    "why_off",
]
