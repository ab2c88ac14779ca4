"""Whether the time of day may be trusted to tell how old a picture is.

A clock that is set years ahead makes every picture look too old. So age alone deletes nothing until
the station has lived under its clock for a while: it has recorded a part some time ago and not
before the oldest picture that is kept, or this run has seen the clock go steadily for so long.
"""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

STEADY = timedelta(days=1)
JUMP = timedelta(hours=1)
_LIVED = "SELECT 1 FROM part WHERE at BETWEEN ? AND ? LIMIT 1"


class SteadyClock:
    """Compares the time of day with a clock that nobody can set.

    >>> from datetime import timezone
    >>> clock, noon = SteadyClock(days=30), datetime(2026, 1, 20, 12, tzinfo=timezone.utc)
    >>> clock.look(noon, 0.0)
    >>> clock.look(noon + timedelta(days=2), 2 * 86400.0); clock.is_steady
    True
    >>> clock.look(noon + timedelta(days=900), 2 * 86400.0 + 60); clock.is_steady
    False
    """

    def __init__(self, days: int) -> None:
        self._days = timedelta(days=days)
        self._steady = min(STEADY, self._days / 2)
        self._now = datetime.min
        self._offset: float | None = None
        self._since = self._seconds = 0.0
        self._jumped = False

    def look(self, now: datetime, seconds: float) -> None:
        """Note the time of day, and a clock in seconds that is never set."""
        offset = now.timestamp() - seconds
        if self._offset is None or abs(offset - self._offset) > JUMP.total_seconds():
            self._jumped = self._offset is not None
            self._offset, self._since = offset, seconds
        self._now, self._seconds = now, seconds

    @property
    def is_steady(self) -> bool:
        """Whether this run has seen the clock go steadily for long enough."""
        return self._seconds - self._since >= self._steady.total_seconds()

    def may_age(self, data: sqlite3.Connection) -> bool:
        """Whether age may delete pictures now."""
        if self.is_steady or self._jumped:
            return self.is_steady
        span = (_text(self._now - self._days), _text(self._now - self._steady))
        return data.execute(_LIVED, span).fetchone() is not None


def _text(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")
