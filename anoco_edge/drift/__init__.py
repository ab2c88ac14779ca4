"""The drift watch: says when light or camera have moved since calibration."""

from anoco_edge.drift.watch import DriftWatch, Warned, promise, why_off

__all__ = ["DriftWatch", "Warned", "promise", "why_off"]
