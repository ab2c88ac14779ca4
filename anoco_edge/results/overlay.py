"""The overlay of one inspected picture, drawn when somebody asks for it."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.detector import Detector
from anoco_edge.errors import AnocoError
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.reporting.overlay import Match, draw_overlay
from anoco_edge.results.rows import ResultRow

OVERLAY_QUALITY = 88


class Overlay:
    """Draws heat map, regions and best-matching reference of a picture, and at most once."""

    def __init__(self, detector: Detector, inspection: Inspection, rgb: NDArray[np.uint8]) -> None:
        self._detector = detector
        self._inspection = inspection
        self._rgb = rgb

    def image(self) -> Image.Image:
        """Return the drawing; AnocoError where the reference picture cannot be read."""
        return self._image

    def jpeg(self) -> bytes:
        """Return the drawing as it is kept in a file."""
        buffer = io.BytesIO()
        self._image.save(buffer, "JPEG", quality=OVERLAY_QUALITY)
        return buffer.getvalue()

    @cached_property
    def _image(self) -> Image.Image:
        inspection = self._inspection
        return draw_overlay(
            self._rgb,
            inspection.map,
            score=inspection.score,
            threshold=inspection.threshold,
            verdict=inspection.verdict,
            kind=inspection.threshold_kind,
            regions=[region.box for region in inspection.regions],
            outline=inspection.outline_at_picture,
            match=self._match(),
        )

    def _match(self) -> Match | None:
        evidence = self._inspection.peak_evidence
        if evidence is None:
            return None
        return Match(
            reference=self._detector.reference_picture(evidence),
            name=evidence.reference,
            box=evidence.box,
            similarity=evidence.similarity,
            query_box=evidence.query_box,
        )


def draw_for_row(row: ResultRow, overlay: Overlay) -> tuple[ResultRow, bytes | None]:
    """Return the overlay as JPEG, or the row with the reason why it cannot be drawn.

    The verdict stands without its picture, so such an error must not cost the row.
    """
    try:
        return row, overlay.jpeg()
    except AnocoError as error:
        return replace(row, overlay_error=str(error)), None
