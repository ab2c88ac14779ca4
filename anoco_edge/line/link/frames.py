"""Frames that the station may look at: held in the shared memory, never copied by the line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import simplejpeg

from anoco_edge.line.frame_memory import FrameMemory, Pixels, Slot

PREVIEW_WIDTH = 960
_QUALITY = 80


class LinkFrames:
    """The latest frame of each camera. A camera's thread calls `keep`, the link reads."""

    def __init__(self, memory: FrameMemory) -> None:
        self._memory = memory
        self._latest: dict[str, Slot] = {}
        self._lock = threading.Lock()
        self._closed = False

    def keep(self, camera: str, slot: Slot) -> None:
        """Hold a new frame in place of the one before."""
        with self._lock:
            if self._closed:
                return
            self._memory.hold(slot)
            before = self._latest.get(camera)
            self._latest[camera] = slot
        if before is not None:
            self._memory.let_go(before)

    @contextmanager
    def latest(self, camera: str) -> Iterator[Pixels | None]:
        """Lend the latest frame of a camera; None if there was none yet."""
        with self._lock:
            slot = self._latest.get(camera)
            if slot is not None:
                self._memory.hold(slot)
        try:
            yield None if slot is None else self._memory.view(slot)
        finally:
            if slot is not None:
                self._memory.let_go(slot)

    def close(self) -> None:
        """Let all frames go."""
        with self._lock:
            self._closed = True
            for slot in self._latest.values():
                self._memory.let_go(slot)
            self._latest.clear()


def preview(rgb: Pixels) -> bytes:
    """Return a JPEG of a frame, at most 960 pixels wide: every second, third or nth pixel.

    >>> picture = preview(np.zeros((1000, 2000, 3), np.uint8))
    >>> simplejpeg.decode_jpeg_header(picture)[:2]
    (334, 667)
    """
    step = -(-rgb.shape[1] // PREVIEW_WIDTH)
    small = np.ascontiguousarray(rgb[::step, ::step])
    return bytes(simplejpeg.encode_jpeg(small, quality=_QUALITY, fastdct=True))
