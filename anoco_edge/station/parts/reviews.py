"""What people say about parts, and which parts are never deleted: reviews and pins."""

from __future__ import annotations

from anoco_edge.errors import UsageError
from anoco_edge.line.store.database import wall_time
from anoco_edge.station.database import Database
from anoco_edge.station.parts.part_models import Review, ReviewVerdict

MOST_NOTE = 2000


class Reviews:
    """Writes reviews and pins into station.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def review(self, uid: str, verdict: ReviewVerdict, note: str, by: str) -> Review:
        """Note what a person says about a part; the last word counts."""
        if len(note) > MOST_NOTE:
            raise UsageError(f"a note of {len(note)} characters", hint=f"write at most {MOST_NOTE}")
        made = Review(verdict=verdict, note=note, by=by, at=wall_time())
        with self._database.write() as data:
            data.execute(
                "INSERT OR REPLACE INTO review (uid, verdict, note, by, at) VALUES (?,?,?,?,?)",
                (uid, verdict, note, by, made.at),
            )
        return made

    def withdraw(self, uid: str) -> bool:
        """Take a review back; False where there was none."""
        with self._database.write() as data:
            return data.execute("DELETE FROM review WHERE uid = ?", (uid,)).rowcount > 0

    def pin(self, uid: str, by: str, *, on: bool) -> None:
        """Keep the pictures of a part for good, or leave them to the retention again."""
        with self._database.write() as data:
            if on:
                values = (uid, by, wall_time())
                data.execute("INSERT OR IGNORE INTO pin (uid, by, at) VALUES (?,?,?)", values)
            else:
                data.execute("DELETE FROM pin WHERE uid = ?", (uid,))
