"""The audit: who changed what and when, in a chain of hashes.

Each entry holds a hash over itself and the hash of the entry before it. Whoever changes, removes or
inserts an entry has to change all later ones, so that a hash that was noted elsewhere proves
everything before it. Entries are ordered by their numbers: a clock that was set back changes
nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from anoco_edge.line.store.database import wall_time
from anoco_edge.station.database import Database
from anoco_edge.station.people.roles import User

START = "0" * 64
"""What the first entry has for the hash of the entry before it."""


@dataclass(frozen=True)
class Entry:
    """One entry of the audit."""

    id: int
    at: str
    user: str
    via: str
    action: str
    subject: str
    details: str
    hash: str

    def expected(self, before: str) -> str:
        """Return the hash that this entry must have after one with the hash `before`."""
        fields = (before, self.id, self.at, self.user, self.via, self.action, self.subject)
        text = json.dumps([*fields, self.details], ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class AuditReport:
    """What a check of the whole audit found."""

    entries: int
    head: str
    """The hash of the last entry: note it elsewhere."""
    broken_at: int | None = None
    """The number of the first entry that does not follow from those before it."""
    clock_set_back: int = 0
    """How many entries have an earlier time than the entry before them."""
    known_head_found: bool = True
    """Whether the hash that was noted before still stands in the chain."""

    @property
    def holds(self) -> bool:
        """Whether nothing was changed, removed or inserted."""
        return self.broken_at is None and self.known_head_found


class Audit:
    """Writes the audit of a station, and reads it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(
        self, user: User, action: str, subject: str, details: Mapping[str, Any] | None = None
    ) -> None:
        """Add an entry, in the transaction that is open or in one of its own."""
        text = json.dumps(details or {}, sort_keys=True, ensure_ascii=False)
        with self._database.write() as data:
            last = data.execute("SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1").fetchone()
            number, before = (last["id"] + 1, last["hash"]) if last else (1, START)
            new = Entry(number, wall_time(), user.name, user.via, action, subject, text, "")
            values = (*vars(new).values(),)[:-1]
            data.execute(
                "INSERT INTO audit VALUES (?,?,?,?,?,?,?,?)", (*values, new.expected(before))
            )

    def entries(self, before: int | None = None, limit: int = 100) -> list[Entry]:
        """Return entries, the latest first; `before` is the number of the last one seen."""
        rows = self._database.rows(
            "SELECT * FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?",
            (before if before is not None else 1 << 62, limit),
        )
        return [Entry(**row) for row in rows]

    def check(self, known_head: str = "") -> AuditReport:
        """Check the whole chain, and that it still holds a hash that was noted before."""
        rows = self._database.rows("SELECT * FROM audit ORDER BY id")
        return check_chain((Entry(**row) for row in rows), known_head)


def check_chain(entries: Iterable[Entry], known_head: str = "") -> AuditReport:
    """Check entries in their order.

    >>> first = Entry(1, "2026-01-01", "mia", "session", "reset", "line", "{}", "")
    >>> first = Entry(**{**vars(first), "hash": first.expected(START)})
    >>> check_chain([first]).holds, check_chain([Entry(**{**vars(first), "user": "eve"})]).broken_at
    (True, 1)
    """
    before, at, set_back, number = START, "", 0, 0
    found = not known_head
    for number, entry in enumerate(entries, start=1):
        if entry.id != number or entry.hash != entry.expected(before):
            return AuditReport(number - 1, before, entry.id, set_back, found)
        set_back += entry.at < at
        before, at = entry.hash, entry.at
        found = found or before == known_head
    return AuditReport(number, before, None, set_back, found)
