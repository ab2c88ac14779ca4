"""Free-running cameras: a trigger gets a frame that was certainly exposed after it."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from types import TracebackType

import numpy as np
from fake_gige import Listener

from anoco_edge.errors import EnvironmentMissingError, PictureError
from anoco_edge.images.frame import Frame
from anoco_edge.line.cameras.stream import StreamCamera
from anoco_edge.line.core.events import CameraDown, CameraProgress, CameraUp, Picture
from anoco_edge.line.core.settings import MS

LATENCY = 80
RGB = np.full((16, 16, 3), 9, np.uint8)


class Stream:
    """A source whose frames a test sends; None ends it."""

    name, live, total, skipped = "stream", True, None, 0

    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()

    def send(self, after: float = 0.0, *, whole: bool = True) -> float:
        """Send a frame that arrived so many seconds after now; return when it arrived."""
        arrived = time.monotonic() + after
        error = None if whole else PictureError("it was cut", hint="take it again")
        self.frames.put(Frame("s", 0, RGB if whole else None, error, captured=arrived))
        return arrived

    def __iter__(self) -> Iterator[Frame]:
        while (frame := self.frames.get()) is not None:
            yield frame

    def close(self) -> None:
        self.frames.put(None)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def test_a_trigger_gets_a_frame_that_was_exposed_after_it_and_a_lost_stream_returns() -> None:
    streams = [Stream(), Stream()]
    waiting: list[Stream | None] = [None, streams[0], streams[1]]

    def connect() -> Stream:
        found = waiting.pop(0)
        if found is None:
            raise EnvironmentMissingError("there is no camera", hint="plug it in")
        return found

    listener = Listener()
    camera = StreamCamera(connect, LATENCY, listener.outlet)
    camera.start()
    assert "there is no camera" in listener.next(CameraDown).why
    first, second = streams
    first.send()
    listener.next(CameraUp)
    listener.next(CameraProgress)

    asked = time.monotonic_ns()
    camera.take()
    first.send(0.05)  # it may have been exposed before the trigger
    arrived = first.send(0.2)
    picture = listener.next(Picture)
    assert (picture.counter, picture.complete) == (1, True)
    assert picture.exposed_to == round(arrived * 1e9)
    assert picture.exposed_from == picture.exposed_to - LATENCY * MS >= asked
    (slot,) = listener.frames.values()
    assert (listener.memory.view(slot) == RGB).all()
    listener.let_go()

    first.send()  # nobody asks for it
    camera.take()
    camera.take()  # the second request overtakes the first
    first.send(0.5, whole=False)
    picture = listener.next(Picture)
    assert (picture.counter, picture.complete) == (3, False) and not listener.frames

    camera.take()
    first.frames.put(None)
    assert "the stream has ended" in listener.next(CameraDown).why
    second.send()
    listener.next(CameraUp)
    second.send(0.3)  # what was asked before belongs to nobody
    camera.close()
    assert not listener.frames
