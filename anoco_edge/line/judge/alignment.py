"""Finds a part in a picture and moves it to where it lies in the reference.

A region of interest and a mask hold for one place. Where parts do not always lie there, one box of
the reference is searched for (`template`, `phase`: the part is shifted), or four and more marks
(`marks`: it is shifted, turned, or seen at another angle). What is not found has no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import PictureError, UsageError
from anoco_edge.images.preprocess import Box, Mask
from anoco_edge.sources.cv2_reader import load_cv2

Pixels = NDArray[np.uint8]
Gray = NDArray[np.uint8]
Matrix = NDArray[np.float64]
Method = Literal["template", "phase", "marks"]
PixelBox = tuple[int, int, int, int]
LEAST_SIDE = 8  # of a box; less looks like anything
LEAST_MARKS = 4
_FLAT = 2.0  # gray levels of deviation, below which a box has nothing to be found by
_AROUND = 3  # pixels by which phase correlation may be off
_RESIDUAL = 3.0  # pixels by which more than four marks may disagree


@dataclass(frozen=True)
class AlignmentSettings:
    """Boxes of the reference (left, top, width, height), how far they may have moved in pixels, and
    the least score of the best place, from 0 to 1."""

    boxes: tuple[PixelBox, ...]
    method: Method = "template"
    search: int = 32
    min_score: float = 0.6


@dataclass(frozen=True)
class Alignment:
    """A picture that was moved onto the reference, and which of its pixels the camera saw."""

    pixels: Pixels = field(repr=False)
    seen: Mask = field(repr=False)
    score: float
    to_camera: Matrix

    def in_camera(self, box: Box) -> Box:
        """Return the box that encloses a box of the moved picture in the camera's own."""
        left, top, right, bottom = box
        corners = np.array([[left, right, right, left], [top, top, bottom, bottom], [1.0] * 4])
        x, y, scale = self.to_camera @ corners
        x, y = x / scale, y / scale
        return float(x.min()), float(y.min()), float(x.max()), float(y.max())


class Aligner:
    """Aligns pictures with one reference."""

    def __init__(self, settings: AlignmentSettings, reference: Pixels) -> None:
        self._settings = settings
        self._cv2 = load_cv2()
        self._gray: Gray = self._cv2.cvtColor(np.ascontiguousarray(reference), _rgb2gray(self._cv2))
        check_boxes(settings, self._gray)

    def align(self, rgb: Pixels) -> Alignment | None:
        """Find the part and move it; None where it is not found."""
        if rgb.shape[:2] != self._gray.shape:
            raise PictureError(
                f"the picture is {rgb.shape[1]}x{rgb.shape[0]}, the reference "
                f"{self._gray.shape[1]}x{self._gray.shape[0]}",
                hint="align pictures of the size of the reference",
            )
        gray: Gray = self._cv2.cvtColor(np.ascontiguousarray(rgb), _rgb2gray(self._cv2))
        if self._settings.method == "marks":
            return self._by_marks(rgb, gray)
        find = self._phase if self._settings.method == "phase" else self._template
        dx, dy, score = find(gray, self._settings.boxes[0])
        if score < self._settings.min_score:
            return None
        return _shifted(rgb, round(dx), round(dy), score)

    def _template(
        self, gray: Gray, box: PixelBox, near: tuple[int, int] = (0, 0), search: int | None = None
    ) -> tuple[float, float, float]:
        """Return the shift of a box and the correlation there, to a fraction of a pixel; it is
        searched for around the shift `near`."""
        x, y, width, height = box
        at = (x + near[0], y + near[1], width, height)
        left, top, right, bottom = _window(at, search or self._settings.search, gray)
        if right - left < width or bottom - top < height:
            return 0.0, 0.0, 0.0
        where = self._cv2.matchTemplate(
            gray[top:bottom, left:right],
            self._gray[y : y + height, x : x + width],
            self._cv2.TM_CCOEFF_NORMED,
        )
        _, score, _, (col, row) = self._cv2.minMaxLoc(where)
        fine_x = col + _vertex(where[row, max(col - 1, 0) : col + 2], col)
        fine_y = row + _vertex(where[max(row - 1, 0) : row + 2, col], row)
        return left + fine_x - x, top + fine_y - y, float(score)

    def _phase(self, gray: Gray, box: PixelBox) -> tuple[float, float, float]:
        """Return the shift of the window around a box. It is near the right one, so the box itself
        is then compared at the places around it."""
        left, top, right, bottom = _window(box, self._settings.search, gray)
        size = (right - left, bottom - top)
        weights = self._cv2.createHanningWindow(size, self._cv2.CV_32F)
        old, new = (each[top:bottom, left:right].astype(np.float32) for each in (self._gray, gray))
        (dx, dy), _ = self._cv2.phaseCorrelate(old, new, weights)
        if not max(abs(dx), abs(dy)) <= self._settings.search:
            return 0.0, 0.0, 0.0
        return self._template(gray, box, (round(dx), round(dy)), _AROUND)

    def _by_marks(self, rgb: Pixels, gray: Gray) -> Alignment | None:
        found = [self._template(gray, box) for box in self._settings.boxes]
        score = min(score for *_, score in found)
        if score < self._settings.min_score:
            return None
        centers = np.array([(x + w / 2, y + h / 2) for x, y, w, h in self._settings.boxes])
        moved = centers + np.array([(dx, dy) for dx, dy, _ in found])
        matrix, _ = self._cv2.findHomography(centers, moved, 0)
        if matrix is None or self._residual(matrix, centers, moved) > _RESIDUAL:
            return None
        size = (rgb.shape[1], rgb.shape[0])
        flags = self._cv2.INTER_LINEAR | self._cv2.WARP_INVERSE_MAP
        edge = self._cv2.BORDER_REPLICATE
        pixels = self._cv2.warpPerspective(rgb, matrix, size, flags=flags, borderMode=edge)
        # Four wrong marks give a picture too, but not that of the reference.
        score = min(score, self._likeness(pixels))
        if score < self._settings.min_score:
            return None
        ones = np.full(rgb.shape[:2], 255, np.uint8)
        seen = self._cv2.warpPerspective(ones, matrix, size, flags=flags) == 255
        return Alignment(pixels, seen, score, np.asarray(matrix, np.float64))

    def _likeness(self, pixels: Pixels) -> float:
        """Return the correlation of a moved picture and the reference between all marks."""
        x, y, w, h = np.array(self._settings.boxes).T
        rows, cols = slice(y.min(), (y + h).max()), slice(x.min(), (x + w).max())
        gray: Gray = self._cv2.cvtColor(pixels, _rgb2gray(self._cv2))
        pair = gray[rows, cols], self._gray[rows, cols]
        return float(self._cv2.matchTemplate(*pair, self._cv2.TM_CCOEFF_NORMED)[0, 0])

    def _residual(self, matrix: Matrix, centers: Matrix, moved: Matrix) -> float:
        points = self._cv2.perspectiveTransform(centers[None], matrix)[0]
        return float(np.linalg.norm(points - moved, axis=1).max())


def check_boxes(settings: AlignmentSettings, gray: Gray) -> None:
    """Refuse boxes that cannot be found again: outside of the reference, tiny or without detail."""
    least = LEAST_MARKS if settings.method == "marks" else 1
    count = len(settings.boxes)
    if count < least or (least == 1 and count > 1):
        raise UsageError(
            f"{settings.method} with {count} boxes", hint=f"give {least}{' or more' * (least > 1)}"
        )
    height, width = gray.shape
    for box in settings.boxes:
        x, y, w, h = box
        words = f"the box {x},{y},{w},{h}"
        if min(x, y) < 0 or min(w, h) < LEAST_SIDE or x + w > width or y + h > height:
            raise UsageError(
                f"{words} does not lie in the reference, which is {width}x{height}",
                hint=f"give left, top, width and height of at least {LEAST_SIDE} pixels",
            )
        if float(gray[y : y + h, x : x + w].std()) < _FLAT:
            raise UsageError(f"{words} has no detail", hint="choose one with an edge or a mark")


def _shifted(rgb: Pixels, dx: int, dy: int, score: float) -> Alignment:
    """Move a picture by whole pixels, so that no pixel is interpolated."""
    height, width = rgb.shape[:2]
    rows, cols = np.arange(height) + dy, np.arange(width) + dx
    inside_rows, inside_cols = (rows >= 0) & (rows < height), (cols >= 0) & (cols < width)
    pixels = rgb[rows.clip(0, height - 1)][:, cols.clip(0, width - 1)]
    matrix = np.array([[1.0, 0, dx], [0, 1, dy], [0, 0, 1]])
    return Alignment(pixels, inside_rows[:, None] & inside_cols, score, matrix)


def _window(box: PixelBox, search: int, gray: Gray) -> tuple[int, int, int, int]:
    x, y, width, height = box
    right, bottom = min(x + width + search, gray.shape[1]), min(y + height + search, gray.shape[0])
    return max(x - search, 0), max(y - search, 0), right, bottom


def _vertex(values: Sequence[float] | NDArray[Any], place: int) -> float:
    """Return how far the top of a parabola through three values lies from the middle one.

    >>> round(_vertex([0.5, 1.0, 0.9], 1), 3)
    0.333
    """
    if len(values) < 3 or place == 0:
        return 0.0
    before, middle, after = (float(value) for value in values)
    bend = before - 2 * middle + after
    return 0.0 if bend >= 0 else (before - after) / (2 * bend)


def _rgb2gray(cv2: Any) -> int:
    return int(cv2.COLOR_RGB2GRAY)
