"""Which trigger a picture belongs to: by its exposure time and by the camera's frame counter.

A camera that is asked for pictures exposes one for each request, so the counter of a frame says
which request it answers; the exposure time says it too. Where the two disagree, the camera is out
of step. It comes into step by a test picture that is exposed within the time of its own request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from anoco_edge.line.core.events import Picture
from anoco_edge.line.core.settings import CameraSettings

Answer = Literal["current", "earlier", "test", "out of step"]


def unwrap(counter: int, near: int, bits: int) -> int | None:
    """Continue a counter of 16 bits over its wraps; `near` is the last continued value.

    GigE Vision counts blocks from 1 to 65535 and then from 1 again; 0 is no counter.

    >>> unwrap(65535, 65534, 16), unwrap(1, 65535, 16), unwrap(65535, 65536, 16)
    (65535, 65536, 65535)
    >>> unwrap(0, 5, 16) is None, unwrap(70000, 69999, 0)
    (True, 70000)
    """
    if bits == 0:
        return counter if counter >= 0 else None
    period = (1 << bits) - 1
    if not 1 <= counter <= period:
        return None
    ahead = (counter - near) % period
    return near + ahead - (period if ahead > period // 2 else 0)


@dataclass(frozen=True)
class _Request:
    """A picture that a camera was asked for: its number, and when it has to be exposed."""

    number: int
    asked: int
    until: int

    def holds(self, picture: Picture) -> bool:
        """Whether the exposure certainly began after the request and ended in its time."""
        return self.asked <= picture.exposed_from <= picture.exposed_to <= self.until


class Pairing:
    """The requests to one camera, and whether its frames answer them one by one.

    >>> top = Pairing(CameraSettings("top"))
    >>> top.up = True
    >>> top.ask(now=0, until=100); top.answer(Picture("top", 40, 10, 12))
    'test'
    >>> top.ask(now=200, until=300); top.answer(Picture("top", 41, 210, 212))
    'current'
    >>> top.ask(now=400, until=500); top.answer(Picture("top", 43, 410, 412))
    'out of step'
    """

    KEPT = 8
    """Requests that are remembered, so that a late picture is known to answer an earlier one."""

    def __init__(self, camera: CameraSettings) -> None:
        self.camera = camera
        self.up = False
        self._requests: list[_Request] = []
        self._offset: int | None = None  # of a counter over the number of its request
        self._newest = 0

    @property
    def in_step(self) -> bool:
        """Whether counter and time agree."""
        return self.up and self._offset is not None

    @property
    def waiting_until(self) -> int | None:
        """When the time of the last request ends; None if nothing was asked for."""
        return self._requests[-1].until if self._requests else None

    def lose_step(self) -> None:
        """Trust neither counter nor requests any more."""
        self._offset = None
        self._requests.clear()

    def ask(self, now: int, until: int) -> None:
        """Note that the camera is asked for a picture."""
        number = self._requests[-1].number + 1 if self._requests else 0
        self._requests = [*self._requests[1 - self.KEPT :], _Request(number, now, until)]

    def close(self, now: int) -> None:
        """End the time of the last request: something else lies in front of the camera now."""
        if self._requests:
            last = self._requests[-1]
            self._requests[-1] = replace(last, until=min(last.until, now))

    def answer(self, picture: Picture) -> Answer:
        """Say which request a picture answers.

        After "out of step" the camera needs a test picture before it is in step again.
        """
        if self._offset is None:
            return self._answer_test(picture)
        counter = unwrap(picture.counter, self._newest, self.camera.counter_bits)
        if counter is None or counter <= self._newest:
            self.lose_step()
            return "out of step"
        self._newest = counter
        by_counter = counter - self._offset
        # What is exposed after a request shows what lies there since, whatever was asked before.
        by_time = next((each for each in reversed(self._requests) if each.holds(picture)), None)
        if by_time is None or by_time.number != by_counter:
            self.lose_step()
            return "out of step"
        return "current" if by_time is self._requests[-1] else "earlier"

    def _answer_test(self, picture: Picture) -> Answer:
        counter = unwrap(picture.counter, 1, self.camera.counter_bits)
        if counter is None or not self._requests or not self._requests[-1].holds(picture):
            return "out of step"
        self._newest = counter
        self._offset = counter - self._requests[-1].number
        return "test"


class WiredCounter:
    """The frame counter of a camera that a wire triggers: each frame is a part.

    >>> side = WiredCounter(CameraSettings("side", 16))
    >>> side.lost(65534), side.lost(65535), side.lost(3), side.lost(3)
    (0, 0, 2, None)
    """

    MOST_LOST = 1000
    """A larger step of the counter is no loss: the camera began to count again."""

    def __init__(self, camera: CameraSettings) -> None:
        self._camera = camera
        self._newest: int | None = None

    def reset(self) -> None:
        """Begin with the next frame, whatever its counter is."""
        self._newest = None

    def lost(self, counter: int) -> int | None:
        """Return how many frames before this one never came; None if the counter is not one that
        can follow."""
        near = self._newest
        found = unwrap(counter, counter if near is None else near, self._camera.counter_bits)
        self._newest = found
        if found is None or near is None:
            return None if found is None else 0
        lost = found - near - 1
        return lost if 0 <= lost <= self.MOST_LOST else None
