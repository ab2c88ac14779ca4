"""Which pictures are kept, and which are deleted to keep to days, bytes and free space.

Rows stay: they are small. Pictures of parts that a person has pinned are never deleted. Age deletes
nothing while the clock may be wrong (`steady_clock`). Bytes and free space hold all the time, by
the order in which pictures came.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from anoco_edge.line.core.effects import PartRecord
from anoco_edge.line.store.steady_clock import SteadyClock

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class RetentionRules:
    """What is kept: every reject, what is near the threshold, every Nth good part (0: none)."""

    days: int = 30
    max_bytes: int = 20_000 * MEGABYTE
    min_free_bytes: int = 2_000 * MEGABYTE
    keep_good_every: int = 100
    near_threshold: float = 0.8

    def keeps(self, record: PartRecord, number_of_good: int) -> bool:
        """Whether the pictures of a part are written at all.

        >>> from anoco_edge.line.words.constants import Reason
        >>> good = PartRecord("r1-1", 1, "", "", True, 0, 1, "good", Reason.NONE, ratio=0.2)
        >>> rules = RetentionRules(keep_good_every=10)
        >>> rules.keeps(good, 7), rules.keeps(good, 20)
        (False, True)
        """
        if record.verdict != "good" or record.ratio >= self.near_threshold:
            return True
        return self.keep_good_every > 0 and number_of_good % self.keep_good_every == 0


@dataclass(frozen=True)
class Cleaning:
    """What a pass of the retention deleted, whether that was enough, and how many pictures look too
    old by a clock that is not trusted yet."""

    deleted: int
    freed: int
    enough: bool
    held: int = 0


class Retention:
    """Deletes pictures of a station's folder, oldest first, good ones before rejects."""

    def __init__(
        self,
        folder: Path,
        rules: RetentionRules,
        *,
        pinned: Callable[[], Collection[str]] = lambda: (),
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    ) -> None:
        self._folder, self._rules = folder, rules
        self._pinned, self._free = pinned, free_bytes
        self._clock = SteadyClock(rules.days)

    def clean(
        self,
        data: sqlite3.Connection,
        now: datetime | None = None,
        seconds: float | None = None,
    ) -> Cleaning:
        """Delete what is too old, then what is too much. `now` is the time of day, and `seconds` a
        clock that is never set."""
        now = now or datetime.now(timezone.utc)
        self._clock.look(now, time.monotonic() if seconds is None else seconds)
        pinned = set(self._pinned())
        rows = data.execute(
            "SELECT c.uid, c.number, c.picture, c.bytes, p.at "
            "FROM capture c JOIN part p USING (uid) WHERE c.picture IS NOT NULL "
            "ORDER BY p.verdict != 'good', p.rowid, c.number"
        ).fetchall()
        total = sum(size for *_, size, _ in rows)
        oldest = (now - timedelta(days=self._rules.days)).isoformat(timespec="milliseconds")
        too_old = {row[:2] for row in rows if row[4] < oldest and row[0] not in pinned}
        held = 0
        if too_old and not self._clock.may_age(data):
            held, too_old = len(too_old), set()
        gone: list[tuple[str, int]] = []
        freed = 0
        for uid, number, picture, size, _ in sorted(rows, key=lambda row: row[:2] not in too_old):
            too_much = total > self._rules.max_bytes or self._short_of_space()
            if uid in pinned or not ((uid, number) in too_old or too_much):
                continue
            (self._folder / picture).unlink(missing_ok=True)
            gone.append((uid, number))
            freed, total = freed + size, total - size
        with data:
            data.execute("BEGIN IMMEDIATE")
            data.executemany(
                "UPDATE capture SET picture = NULL, bytes = NULL WHERE uid = ? AND number = ?", gone
            )
        enough = total <= self._rules.max_bytes and not self._short_of_space()
        return Cleaning(len(gone), freed, enough, held)

    def _short_of_space(self) -> bool:
        return self._free(self._folder) < self._rules.min_free_bytes
