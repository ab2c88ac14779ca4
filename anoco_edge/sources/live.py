"""Live sources, which keep the newest of the frames that arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from anoco_edge.errors import AnocoError, SourceError
from anoco_edge.images.decode import check_rgb
from anoco_edge.images.frame import Frame
from anoco_edge.sources.base import Closeable
from anoco_edge.sources.reader import FrameReader, FrameSizeCheck, ReaderFrame, StreamEndedError

_JOIN_SECONDS = 2.0


class LiveSource(Closeable):
    """Reads all frames in a thread, and keeps only the newest.

    The thread starts at once, so that the first frame that is taken is a new one, not the one that
    was there when the source was opened.
    """

    live = True

    def __init__(
        self, reader: FrameReader, name: str, *, limit: int | None, timeout: float
    ) -> None:
        self.name = name
        self.total = limit
        self._reader = reader
        self._size = FrameSizeCheck()
        self._timeout = timeout
        self._changed = threading.Condition()
        self._slot: Frame | None = None
        self._skipped = 0
        self._delivered = 0
        self._taken = 0
        self._last_sign = time.monotonic()
        self._ended = ""  # why no more frames will come
        self._closed = False
        self._frames = self._read()
        self._thread = threading.Thread(target=self._pump, name=f"reader of {name}", daemon=True)
        self._thread.start()

    @property
    def skipped(self) -> int:
        """The number of frames that came and nobody took."""
        with self._changed:
            return self._skipped

    def __iter__(self) -> Iterator[Frame]:
        return self._frames

    def close(self) -> None:
        """Stop the thread, which releases the device; a read that hangs is not waited for."""
        with self._changed:
            self._closed = True
            self._drop_slot()
            self._changed.notify_all()
        self._reader.interrupt()
        self._thread.join(_JOIN_SECONDS)

    def _read(self) -> Iterator[Frame]:
        while self._taken != self.total:
            newest = self._take()
            if newest is None:
                return
            self._taken += 1
            yield newest

    def _take(self) -> Frame | None:
        """Wait for the newest frame; None once the source is closed."""
        with self._changed:
            while True:
                if self._closed:
                    return None
                if self._slot is not None:
                    newest, self._slot = self._slot, None
                    return newest
                silence = time.monotonic() - self._last_sign
                if self._ended or silence >= self._timeout:
                    why = self._ended or f"nothing came for {self._timeout:g} s"
                    raise SourceError(
                        f"{self.name} stopped after {self._delivered} frames: {why}",
                        hint="check the camera, its cable and the network, then start again",
                    )
                self._changed.wait(self._timeout - silence)

    def _pump(self) -> None:
        """Read frames in the thread, which alone uses the reader, because it is not thread-safe."""
        why = "the reader failed"
        try:
            while not self._closed:
                source = f"{self.name}#{self._delivered}"
                received = self._reader.read(source)
                self._put(make_frame(source, self._delivered, received, self._size))
        except StreamEndedError as exc:
            why = str(exc)
        finally:
            self._reader.close()
            with self._changed:
                self._ended = why
                self._changed.notify_all()

    def _put(self, frame: Frame) -> None:
        with self._changed:
            self._drop_slot()
            self._delivered += 1
            self._last_sign = time.monotonic()
            self._slot = frame
            if self._closed:
                self._drop_slot()
            self._changed.notify_all()

    def _drop_slot(self) -> None:
        if self._slot is not None:
            self._skipped += 1
            self._slot = None


def make_frame(source: str, index: int, received: ReaderFrame, size: FrameSizeCheck) -> Frame:
    """Make a frame of a source out of what a reader received; its size must be the first one's."""
    rgb, error = received.rgb, received.error
    if rgb is not None:
        try:
            rgb = check_rgb(rgb, source)
            error = size.error_of(rgb, source)
        except AnocoError as exc:
            error = exc
    whole = rgb if error is None else None
    return Frame(source, index, whole, error, received.took * 1e3, received.captured)
