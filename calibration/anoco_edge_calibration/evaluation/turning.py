"""Turned test pictures: what a line without a fixture delivers.

A test picture is turned about its centre by an angle that follows from a seed and the name of the
picture. Its size stays the same, and what lies beyond its border is filled by reflection. Its mask
is turned in the same way, so a defect that is reflected into view counts as a defect.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle.schema import Affine
from anoco_edge.images.preprocess import Mask, Pixels
from anoco_edge.pipeline.rotations import sample_reflected

KEPT = 0.5  # the least share of a defect's pixels that a turn leaves in the picture
_DRAWS = 16  # after so many angles that lose too much of a defect, it is turned upside down


def turned(rgb: Pixels, degrees: float) -> Pixels:
    """Return a picture of the same size, turned about its centre and reflected beyond its border.

    >>> rgb = np.arange(9, dtype=np.uint8).reshape(3, 3, 1).repeat(3, axis=2)
    >>> turned(rgb, 90)[..., 0].tolist()
    [[2, 5, 8], [1, 4, 7], [0, 3, 6]]
    """
    return sample_reflected(rgb, _view(degrees, rgb.shape[1], rgb.shape[0]))


def turned_mask(mask: Mask, degrees: float) -> Mask:
    """Return the mask of a turned picture: the pixels that are defective by more than half.

    >>> turned_mask(np.array([[1, 1, 0], [0, 0, 0], [0, 0, 0]], np.bool_), 90).astype(int).tolist()
    [[0, 0, 0], [1, 0, 0], [1, 0, 0]]
    """
    gray = mask.astype(np.uint8)[..., None].repeat(3, axis=2) * np.uint8(255)
    result: Mask = turned(gray, degrees)[..., 0] > 127
    return result


def draw_angle(seed: int, name: str, mask: Mask | None = None) -> float:
    """Draw an angle from 0 to 360 degrees for the picture of this name.

    It does not depend on other pictures. An angle that would turn more than half of a defect out
    of the picture is drawn again.

    >>> round(draw_angle(0, "nut/good/001.png"), 3), round(draw_angle(1, "nut/good/001.png"), 3)
    (119.713, 208.334)
    """
    for number in range(_DRAWS):
        digest = hashlib.sha256(f"{seed}|{number}|{name}".encode()).digest()
        degrees = 360 * int.from_bytes(digest[:6], "big") / (1 << 48)
        if mask is None or share_kept(mask, degrees) >= KEPT:
            return degrees
    return 180.0


def share_kept(mask: Mask, degrees: float) -> float:
    """Return the share of a mask's pixels that are still in the picture after the turn.

    >>> share_kept(np.array([[1, 0, 0, 0, 0, 1]], np.bool_), 90)
    0.0
    """
    height, width = mask.shape
    rows, cols = np.nonzero(mask)
    a, b, c, d, e, f = _view(-degrees, width, height)
    x, y = cols + 0.5, rows + 0.5
    inside = _within(a * x + b * y + c, width) & _within(d * x + e * y + f, height)
    return float(inside.mean())


def _within(position: NDArray[np.float64], length: int) -> Mask:
    result: Mask = (position > 0) & (position < length)
    return result


def _view(degrees: float, width: int, height: int) -> Affine:
    """Return where a position in the turned picture comes from."""
    # Twelve digits are the same with every C library, and right angles become exact.
    angle = math.radians(degrees)
    cos, sin = round(math.cos(angle), 12), round(math.sin(angle), 12)
    x, y = width / 2, height / 2
    return (cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y)
