"""The protocol of what reads the frames of one stream or video."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, PictureError


class StreamEndedError(Exception):
    """No more frames will come; the text says why, for people."""


@dataclass(frozen=True)
class ReaderFrame:
    """One frame that a reader received: `rgb` if it is whole, `error` if it is not.

    >>> ReaderFrame(None, PictureError("cam#3 is corrupt"), 12.5, 0.001).rgb is None
    True
    """

    rgb: NDArray[np.uint8] | None
    error: AnocoError | None
    captured: float  # time.monotonic() when it had arrived, before it was decoded
    took: float  # seconds that decoding took


class FrameReader(Protocol):
    """Reads frames in the order in which they are shown. One thread reads and closes."""

    def read(self, name: str) -> ReaderFrame:
        """Wait for the next frame, which errors call `name`; StreamEndedError at the end."""

    def interrupt(self) -> None:
        """End a read that waits, where that is possible; called by another thread."""

    def close(self) -> None:
        """Release the device, connection or file; may be called twice."""


class FrameSizeCheck:
    """Refuses frames of another size than the first one's.

    A detector scales every picture to its own size, so frames of a camera that switches its format
    would be inspected in a distorted form.

    >>> size = FrameSizeCheck()
    >>> size.error_of(np.zeros((48, 64, 3), np.uint8), "cam#0") is None
    True
    >>> print(size.error_of(np.zeros((30, 100, 3), np.uint8), "cam#1").what)
    cam#1 is 100x30 pixels, but the stream began with 64x48
    """

    def __init__(self) -> None:
        self._first: tuple[int, int] | None = None

    def error_of(self, rgb: NDArray[np.uint8], name: str) -> PictureError | None:
        """Make an error if this frame is of another size than the first; None if it is not."""
        height, width = rgb.shape[:2]
        self._first = self._first or (width, height)
        if (width, height) == self._first:
            return None
        return PictureError(
            f"{name} is {width}x{height} pixels, but the stream began with"
            f" {self._first[0]}x{self._first[1]}",
            hint="set the camera to one size, then start again",
        )
