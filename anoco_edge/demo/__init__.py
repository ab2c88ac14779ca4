"""Rendered parts: good and defective pictures to try the detector on, without a camera."""
