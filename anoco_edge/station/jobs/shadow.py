"""A candidate judges beside the current generation for some parts, without a say.

The candidate is a change whose dry run was made, or a bundle that was sent. While a trial runs, the
line stores the pictures of all parts, and the worker judges them a few at a time; nothing in the
line knows of the candidate. The verdicts to compare with are those that the line put out.
"""

from __future__ import annotations

import json
from sqlite3 import Row
from typing import Literal

from pydantic import Field, StrictInt

from anoco_edge.errors import UsageError
from anoco_edge.line.store.database import wall_time
from anoco_edge.station.database import Database
from anoco_edge.station.jobs.job_models import ShadowRequest
from anoco_edge.station.parts.history import History
from anoco_edge.station.parts.part_models import Model

State = Literal["running", "waiting", "taken", "dropped", "failed"]
AT_ONCE = 20
MOST_LISTED = 500
_NEXT = """
SELECT p.uid FROM part p JOIN capture c ON c.uid = p.uid AND c.number = ?
WHERE p.product = ? AND p.at >= ? AND p.accepted = 1 AND p.verdict IN ('good', 'anomalous')
AND c.picture IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM station.shadow_part s WHERE s.shadow = ? AND s.uid = p.uid)
ORDER BY p.at, p.rowid LIMIT ?
"""


class Rule(Model):
    """What happens by itself after the last part.

    The candidate is taken if at most `take_at_most` parts were judged otherwise, and dropped if
    more than `drop_above` were; else a person decides. Null leaves that to the person.
    """

    take_at_most: StrictInt | None = Field(default=None, ge=0)
    drop_above: StrictInt | None = Field(default=None, ge=0)

    def decide(self, differences: int) -> Literal["take", "drop", "ask"]:
        """Return what the rule says.

        >>> Rule(take_at_most=0, drop_above=5).decide(0), Rule(drop_above=5).decide(3)
        ('take', 'ask')
        """
        if self.take_at_most is not None and differences <= self.take_at_most:
            return "take"
        return "drop" if self.drop_above is not None and differences > self.drop_above else "ask"


class ShadowPart(Model):
    """A part as it was judged, and as the candidate judges it."""

    uid: str
    verdict: str
    ratio: float | None
    new_verdict: str
    new_ratio: float | None


class ShadowOutcome(Model):
    """What the worker found for some parts of a trial."""

    parts: list[ShadowPart]


class Shadow(Model):
    """A trial of a candidate."""

    id: int
    state: State
    by: str
    at: str
    product: int
    capture: int
    candidate: str
    parts: int
    seen: int
    rule: Rule
    note: str
    ended: str | None
    job: str | None
    """What makes the change of a candidate that is taken."""
    differences: list[ShadowPart]
    stricter: int
    """How many good parts the candidate rejects."""
    laxer: int
    """How many rejects the candidate passes."""


class Shadows:
    """The trials of a station; one of them runs or waits for a decision at a time."""

    def __init__(self, database: Database, history: History) -> None:
        self._database, self._history = database, history

    def begin(
        self, product: int, capture: int, candidate: str, parts: int, rule: Rule, by: str
    ) -> Shadow:
        """Begin a trial with the parts that come from now on."""
        with self._database.write() as data:
            open_ = "SELECT 1 FROM shadow WHERE state IN ('running', 'waiting')"
            if data.execute(open_).fetchone():
                raise UsageError("a trial is under way", hint="take or drop its candidate first")
            data.execute(
                "INSERT INTO shadow (state, by, at, product, capture, candidate, parts, rule) "
                "VALUES ('running',?,?,?,?,?,?,?)",
                (by, wall_time(), product, capture, candidate, parts, rule.model_dump_json()),
            )
        found = self.current()
        assert found is not None
        return found

    def current(self) -> Shadow | None:
        """Return the latest trial, also one that is over."""
        row = self._database.row("SELECT * FROM shadow ORDER BY id DESC LIMIT 1")
        return None if row is None else self._shadow(row)

    def next_request(self) -> ShadowRequest | None:
        """Return what the worker is to judge next, if parts came."""
        shadow = self.current()
        if shadow is None or shadow.state != "running":
            return None
        limit = min(AT_ONCE, shadow.parts - shadow.seen)
        values = (shadow.capture, shadow.product, shadow.at, shadow.id, limit)
        with self._history.reading() as data:
            uids = [uid for (uid,) in data.execute(_NEXT, values)]
        if not uids:
            return None
        return ShadowRequest(
            shadow=shadow.id,
            product=shadow.product,
            capture=shadow.capture,
            candidate=shadow.candidate,
            uids=uids,
        )

    def note(self, shadow: int, outcome: ShadowOutcome) -> None:
        """Note what the worker found; after the last part the trial waits for a decision."""
        rows = [
            (shadow, p.uid, p.verdict, p.ratio, p.new_verdict, p.new_ratio) for p in outcome.parts
        ]
        with self._database.write() as data:
            data.executemany("INSERT OR IGNORE INTO shadow_part VALUES (?,?,?,?,?,?)", rows)
            seen = "SELECT count(*) FROM shadow_part WHERE shadow = ?"
            (number,) = data.execute(seen, (shadow,)).fetchone()
            data.execute(
                "UPDATE shadow SET state = 'waiting' "
                "WHERE id = ? AND state = 'running' AND parts <= ?",
                (shadow, number),
            )

    def end(self, shadow: int, state: State, note: str, job: str | None = None) -> None:
        """End a trial that runs or waits; `job` makes the change of one that is taken."""
        with self._database.write() as data:
            data.execute(
                "UPDATE shadow SET state = ?, note = ?, ended = ?, job = ? "
                "WHERE id = ? AND state IN ('running', 'waiting')",
                (state, note, wall_time(), job, shadow),
            )

    def take_failed(self, job: str, why: str) -> None:
        """Note that the change of a trial that was taken could not be made."""
        with self._database.write() as data:
            data.execute("UPDATE shadow SET state = 'failed', note = ? WHERE job = ?", (why, job))

    def _shadow(self, row: Row) -> Shadow:
        number = row["id"]
        counts = self._database.row(
            "SELECT count(*) AS seen, "
            "coalesce(sum(verdict = 'good' AND new_verdict != 'good'), 0) AS stricter, "
            "coalesce(sum(verdict != 'good' AND new_verdict = 'good'), 0) AS laxer "
            "FROM shadow_part WHERE shadow = ?",
            (number,),
        )
        assert counts is not None
        differences = self._database.rows(
            "SELECT uid, verdict, ratio, new_verdict, new_ratio FROM shadow_part "
            "WHERE shadow = ? AND verdict != new_verdict ORDER BY uid LIMIT ?",
            (number, MOST_LISTED),
        )
        values = {**dict(row), **dict(counts), "rule": json.loads(row["rule"])}
        parts = [ShadowPart.model_validate(dict(each)) for each in differences]
        return Shadow.model_validate({**values, "differences": parts})
