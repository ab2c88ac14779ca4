"""The heartbeat, which advances only while every part of the station makes progress."""

from __future__ import annotations

from collections.abc import Iterable

from anoco_edge.line.core.settings import MS

BEAT = 100 * MS  # 10 Hz


class Liveness:
    """When each component last made progress, and the heartbeat that follows from it.

    >>> life = Liveness(["camera:top", "judge"], alive_ms=1000)
    >>> life.progress("camera:top", 0); life.progress("judge", 0)
    >>> life.dead(900 * MS), life.dead(1100 * MS)
    ([], ['camera:top', 'judge'])
    """

    def __init__(self, components: Iterable[str], alive_ms: int) -> None:
        self._until: dict[str, int] = dict.fromkeys(components, -1)
        self._window = alive_ms * MS
        self.heartbeat = 0
        self.next_beat = 0

    def progress(self, component: str, now: int, allowance: int = 0) -> None:
        """Note progress. A component that now works for a while has `allowance` to show more."""
        until = now + max(self._window, allowance)
        self._until[component] = until

    def lost(self, component: str) -> None:
        """Note that a component is gone."""
        self._until[component] = -1

    def dead(self, now: int) -> list[str]:
        """Return the components that made no progress in their time."""
        return [name for name, until in self._until.items() if now > until]

    def hung(self, now: int) -> list[str]:
        """Return the components that stopped without a word; one that is known to be lost is being
        connected or started again.

        >>> life = Liveness(["camera:top", "judge"], alive_ms=1000)
        >>> life.progress("judge", 0); life.dead(1100 * MS), life.hung(1100 * MS)
        (['camera:top', 'judge'], ['judge'])
        """
        return [name for name, until in self._until.items() if -1 < until < now]

    def beat(self, now: int) -> None:
        """Advance the heartbeat if it is time and all components are alive.

        After a pause it advances once: a heartbeat says what is, not what should have been.
        """
        if now < self.next_beat:
            return
        if not self.dead(now):
            self.heartbeat = (self.heartbeat + 1) & 0xFFFF
        self.next_beat = now + BEAT
