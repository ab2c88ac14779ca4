"""What the core hears of the recorder: whether it has room, and what it cannot do."""

from __future__ import annotations

from anoco_edge.line.core.events import RecorderRoom
from anoco_edge.line.store.recorder import RecorderLoad

CALM_SECONDS = 10.0


class RecorderWatch:
    """Compares what the recorder says with what the core heard last.

    Pictures count as dropped until none was for `CALM_SECONDS`, so that a warning stands while it
    is true and does not come and go with each picture.

    >>> watch = RecorderWatch()
    >>> watch.look(RecorderLoad(0, 0, 1, ""), has_room=True, now=5.0)
    RecorderRoom(rows=True, trouble='drops pictures')
    >>> watch.look(RecorderLoad(0, 0, 2, ""), has_room=True, now=6.0)
    >>> watch.look(RecorderLoad(0, 0, 2, ""), has_room=True, now=16.0)
    RecorderRoom(rows=True, trouble='')
    """

    def __init__(self) -> None:
        self._reported = RecorderRoom(rows=True)
        self._dropped = 0
        self._dropped_at: float | None = None

    def look(self, load: RecorderLoad, *, has_room: bool, now: float) -> RecorderRoom | None:
        """Return the news for the core, if there is some."""
        if load.dropped > self._dropped:
            self._dropped, self._dropped_at = load.dropped, now
        calm = self._dropped_at is None or now - self._dropped_at >= CALM_SECONDS
        trouble = "cannot write" if load.failure else "" if calm else "drops pictures"
        found = RecorderRoom(has_room, trouble)
        if found == self._reported:
            return None
        self._reported = found
        return found
