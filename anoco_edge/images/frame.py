"""One picture on its way from a source to a result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, PictureError


@dataclass(frozen=True)
class Frame:
    """A picture and its name; `rgb` is None exactly when `error` says why it could not be read.

    `source` is the path as it was given, "clip.mp4#3" or "camera:0#17", and empty for a picture
    without a name. `index` counts what the source delivered, from 0; gaps in the indices of a live
    source are frames that nobody took. `captured` is time.monotonic() when the frame arrived or its
    decoding began.

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
        """The picture; its error is raised for a frame that could not be read."""
        if self.rgb is None:
            raise self.error or PictureError(f"{self.source} could not be read")
        return self.rgb

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Height, width and 3, or None for a frame that could not be read."""
        return None if self.rgb is None else self.rgb.shape
