"""Maps the clock of a camera to ours, as an interval that certainly holds the exposure.

Nothing is estimated. Three facts bound the offset between the two clocks: an exposure comes before
its frame has arrived; it comes after the request that it answers; and a stamp that the camera takes
by command lies between the command and its answer. Each bound gets wider with time, because clocks
drift.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from anoco_edge.line.core.settings import MS

DRIFT = 1e-4  # of the time since a bound was found: two crystals of 50 ppm each
LATE = 2000 * MS  # what a camera did not deliver in this time, it never does


@dataclass(frozen=True)
class Exposure:
    """When a frame was exposed, at the earliest and at the latest, in nanoseconds of our clock."""

    earliest: int
    latest: int

    @property
    def uncertainty(self) -> int:
        """The width of the interval."""
        return self.latest - self.earliest


@dataclass(frozen=True)
class _Bound:
    """A bound of our clock minus the camera's, found at a time of our clock."""

    offset: int
    at: int

    def width(self, now: int) -> int:
        """By how much the bound may be off now."""
        return int(DRIFT * max(now - self.at, 0))


class CameraClock:
    """The offset of one camera's clock, from the moment at which its acquisition was started.

    >>> clock = CameraClock(started=1_000)
    >>> clock.request(5_000)
    >>> clock.frame(stamp=106_000, arrival=9_000)
    Exposure(earliest=5000, latest=9000)
    >>> clock.request(25_000)
    >>> clock.frame(stamp=126_500, arrival=27_000)
    Exposure(earliest=25499, latest=27000)
    """

    def __init__(self, started: int) -> None:
        self._started = started
        self._requests: deque[int] = deque()
        self._least: _Bound | None = None
        self._most: _Bound | None = None

    def request(self, sent: int) -> None:
        """Note a request for one frame, before it is sent. A camera exposes at most one frame for
        each, so the n-th frame was exposed after the n-th request."""
        self._requests.append(sent)

    def latch(self, before: int, stamp: int, after: int) -> None:
        """Note a stamp that the camera took between two times of our clock."""
        self._raise_least(before - stamp, after)
        self._lower_most(after - stamp, after)

    def frame(self, stamp: int, arrival: int) -> Exposure | None:
        """Say when a frame was exposed; 0 is no stamp, and leaves request and arrival alone.

        None says that the bounds contradict each other: the clock of the camera was stepped.
        """
        while len(self._requests) > 1 and self._requests[0] < arrival - LATE:
            self._requests.popleft()
        asked = self._requests.popleft() if self._requests else self._started
        if not stamp:
            return Exposure(asked, arrival)
        self._raise_least(asked - stamp, arrival)
        self._lower_most(arrival - stamp, arrival)
        least, most = self._least, self._most
        assert least is not None and most is not None
        earliest = stamp + least.offset - least.width(arrival)
        latest = stamp + most.offset + most.width(arrival)
        if earliest > latest:
            return None
        return Exposure(max(earliest, self._started), min(latest, arrival))

    def _raise_least(self, offset: int, now: int) -> None:
        known = self._least
        if known is None or offset >= known.offset - known.width(now):
            self._least = _Bound(offset, now)

    def _lower_most(self, offset: int, now: int) -> None:
        known = self._most
        if known is None or offset <= known.offset + known.width(now):
            self._most = _Bound(offset, now)
