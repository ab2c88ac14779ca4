"""A camera that runs freely, such as a V4L2 device or a GStreamer pipeline.

Such a camera tells when a frame arrived, not when it was exposed. Its owner states the longest time
between the two (`latency_ms`). A trigger is answered by the first frame that arrived so much later
that it was certainly exposed after the trigger.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from anoco_edge.errors import SourceError
from anoco_edge.images.frame import Frame
from anoco_edge.line.cameras.actor import PROGRESS_SECONDS, CameraOutlet, Reconnection
from anoco_edge.line.core.events import CameraProgress, CameraUp, Picture
from anoco_edge.line.core.settings import MS
from anoco_edge.sources.base import Source


class StreamCamera:
    """A thread that reads all frames and delivers those that answer a request.

    `open_frames` connects; it is called again whenever the stream has ended. Only the requests are
    counted, because such a source does not number its frames.
    """

    def __init__(
        self, open_frames: Callable[[], Source], latency_ms: int, outlet: CameraOutlet
    ) -> None:
        self._open, self._latency, self._outlet = open_frames, latency_ms * MS, outlet
        self._requests: deque[int] = deque()
        self._counter = 0
        self._closing = threading.Event()
        self._source: Source | None = None
        self._thread = threading.Thread(
            target=self._work, name=f"camera {outlet.camera}", daemon=True
        )

    def start(self) -> None:
        """Connect, in a thread of its own."""
        self._thread.start()

    def take(self) -> None:
        """Ask for a frame that is exposed from now on."""
        self._requests.append(time.monotonic_ns())

    def close(self) -> None:
        """End the thread and release the device."""
        self._closing.set()
        source = self._source
        if source is not None:
            source.close()
        self._thread.join(5)

    def _work(self) -> None:
        Reconnection(self._outlet, self._closing).run(self._session)

    def _session(self) -> None:
        with self._open() as source:
            self._source = source
            self._requests.clear()
            up = False
            said = 0.0
            for frame in source:
                if self._closing.is_set():
                    return
                if not up:  # a device that opens and sends nothing is not there
                    up = True
                    self._outlet.post(CameraUp(self._outlet.camera))
                if time.monotonic() >= said + PROGRESS_SECONDS:
                    said = time.monotonic()
                    self._outlet.post(CameraProgress(self._outlet.camera))
                self._answer(frame)
        raise SourceError("the stream has ended", hint="it is opened again")

    def _answer(self, frame: Frame) -> None:
        latest = round(frame.captured * 1e9)
        earliest = latest - self._latency
        answered = 0
        while self._requests and self._requests[0] <= earliest:
            self._requests.popleft()
            answered += 1
        if not answered:
            return
        self._counter += answered  # a request that a later one overtook has no frame of its own
        if frame.rgb is None:
            name = self._outlet.camera
            self._outlet.post(Picture(name, self._counter, earliest, latest, complete=False))
        else:
            self._outlet.deliver(frame.rgb, self._counter, earliest, latest)
