"""Whether the PLC lives, by its own heartbeat."""

from __future__ import annotations

from anoco_edge.line.core.settings import MS


class PlcLink:
    """The link to the PLC; without a time limit it always stands.

    >>> link = PlcLink(500)
    >>> link.beat(1, now=0); link.beat(1, now=400 * MS)
    >>> link.pass_time(499 * MS), link.pass_time(500 * MS), link.linked
    (False, True, False)
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout = timeout_ms * MS
        self._value: int | None = None
        self._changed = 0
        self.linked = timeout_ms == 0

    def beat(self, value: int, now: int) -> None:
        """Note the value of the heartbeat; it counts when it changes."""
        if value == self._value:
            return
        self._value, self._changed = value, now
        self.linked = True

    def lost_at(self) -> int | None:
        """When the link counts as lost unless the heartbeat changes before."""
        return self._changed + self._timeout if self._timeout and self.linked else None

    def pass_time(self, now: int) -> bool:
        """Note the time; True when the link has just been lost."""
        lost_at = self.lost_at()
        if lost_at is None or now < lost_at:
            return False
        self.linked = False
        return True
