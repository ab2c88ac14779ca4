"""Thresholds with a stated false-reject rate: what they cost, and the report of a calibration."""
