"""The drift watch: says when light or camera have moved since calibration."""

from anoco_edge.drift.watch import DriftWarning, DriftWatch, promise, why_off

__all__ = ["DriftWarning", "DriftWatch", "promise", "why_off"]
