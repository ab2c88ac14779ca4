"""The type of a picture that a source delivers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, PictureError


@dataclass(frozen=True)
class Frame:
    """A picture and its name; `rgb` is None exactly when `error` says why it could not be read.

    `source` is the path as it was given, or a name such as "clip.mp4#3" or "camera:0#17"; it is
    empty for a picture without a name. `index` counts the frames of the source from 0; a gap in the
    indices of a live source means that frames were dropped because they were not taken in time.
    `captured` is the value of time.monotonic() when the frame arrived or its decoding began.

    >>> Frame("a.png", 0, np.zeros((16, 16, 3), np.uint8)).shape
    (16, 16, 3)
    """

    source: str
    index: int
    rgb: NDArray[np.uint8] | None
    error: AnocoError | None = None
    decode_ms: float = 0.0
    captured: float = 0.0

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """Return the picture, or raise the error of a frame that could not be read."""
        if self.rgb is None:
            raise self.error or PictureError(
                f"{self.source} could not be read", hint="take or copy it again"
            )
        return self.rgb

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Return height, width and 3, or None for a frame that could not be read."""
        return None if self.rgb is None else self.rgb.shape
