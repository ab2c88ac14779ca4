"""Turns a picture upright that a camera stored lying down."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

RGB = NDArray[np.uint8]

# These views turn an array as Image.Transpose turns a picture, without a copy. The keys are the
# values of the EXIF orientation tag.
_VIEWS: dict[int, Callable[[RGB], RGB]] = {
    2: lambda rgb: rgb[:, ::-1],
    3: lambda rgb: rgb[::-1, ::-1],
    4: lambda rgb: rgb[::-1],
    5: lambda rgb: rgb.swapaxes(0, 1),
    6: lambda rgb: rgb.swapaxes(0, 1)[:, ::-1],
    7: lambda rgb: rgb.swapaxes(0, 1)[::-1, ::-1],
    8: lambda rgb: rgb.swapaxes(0, 1)[::-1],
}


def turned_upright(rgb: RGB, orientation: int) -> RGB:
    """Return the picture as its EXIF orientation says it is to be seen; 1 and unknown values leave
    it as it is.

    >>> turned_upright(np.zeros((2, 5, 3), np.uint8), 6).shape
    (5, 2, 3)
    """
    turn = _VIEWS.get(orientation)
    return rgb if turn is None else np.ascontiguousarray(turn(rgb))
