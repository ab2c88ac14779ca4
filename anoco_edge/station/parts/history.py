"""Reads the history of a station: parts, counts, scores over time. It never writes.

Each question opens line.db read-only and station.db, which holds reviews and pins, beside it. The
line writes meanwhile; nothing here holds it up, because a reader of a data base with a write-ahead
log blocks no writer. No question stays open for long, or the log could not be shortened.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Literal

from anoco_edge.errors import StorageError, UsageError
from anoco_edge.line.store.database import NAME
from anoco_edge.line.words.constants import Reason
from anoco_edge.station.database import NAME as STATION
from anoco_edge.station.parts.part_models import (
    Capture,
    Counts,
    Part,
    PartPage,
    Review,
    ScoreSeries,
    SeriesEvent,
)
from anoco_edge.station.parts.part_search import Cursor, PartFilter, Value, as_stored, page_query

MOST_PARTS = 500
MOST_POINTS = 2000
PACE_MINUTES = 5
_PART = """
SELECT p.uid, p.at, p.seq, p.part_code, p.accepted, p.verdict, p.reason, p.ratio, p.product,
    p.generation, p.acquire_ms, p.total_ms, p.reserve_ms, p.simulated,
    EXISTS (SELECT 1 FROM late l WHERE l.uid = p.uid), r.verdict, r.note, r.by, r.at,
    n.uid IS NOT NULL
FROM {source}
LEFT JOIN station.review r ON r.uid = p.uid LEFT JOIN station.pin n ON n.uid = p.uid {end}
"""
_CAPTURES = """
SELECT uid, number, camera, verdict, reason, ratio, generation, picture IS NOT NULL FROM capture
WHERE uid IN (SELECT value FROM json_each(?)) ORDER BY uid, number
"""
_SPANS = """
SELECT count(p.ratio), min(p.ratio), max(p.ratio) FROM json_each(?) s
LEFT JOIN part p INDEXED BY {index}
    ON p.at >= s.value ->> 0 AND p.at < s.value ->> 1 AND p.accepted = 1
    AND p.verdict IN ('good', 'anomalous'){product}
GROUP BY s.key ORDER BY s.key
"""
_GENERATIONS = """
SELECT min(p.at), p.generation FROM part p WHERE p.product = ? AND p.at >= ? AND p.at < ?
GROUP BY p.generation ORDER BY 1
"""
_MOST_EVENTS = 200


class History:
    """The parts of a station whose data bases lie in `folder`; `names` are its products'."""

    def __init__(self, folder: Path, names: Mapping[int, str]) -> None:
        self._folder, self._names = folder, dict(names)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open both data bases to read, as one; an error of SQLite becomes a StorageError."""
        paths = (self._folder / NAME, self._folder / STATION)
        line, station = (f"{path.absolute().as_uri()}?mode=ro" for path in paths)
        data: sqlite3.Connection | None = None
        try:
            data = sqlite3.connect(line, uri=True, timeout=5.0, check_same_thread=False)
            data.execute("ATTACH ? AS station", (station,))
            yield data
        except sqlite3.Error as error:
            raise StorageError(
                f"the history cannot be read: {error}", hint=f"look at {self._folder}"
            ) from None
        finally:
            if data is not None:
                data.close()

    # ---- parts

    def search(self, wanted: PartFilter, *, after: str | None = None, limit: int = 50) -> PartPage:
        """Return a page of the parts that are wanted, the newest first."""
        if not 1 <= limit <= MOST_PARTS:
            raise UsageError(f"a page of {limit} parts", hint=f"ask for 1 to {MOST_PARTS}")
        cursor = None if after is None else Cursor.parse(after)
        statement, values = page_query(wanted, cursor, limit + 1)
        with self.reading() as data:
            found = data.execute(statement, values).fetchall()
            end = "ORDER BY p.at DESC, p.rowid DESC"
            source = "json_each(?) s CROSS JOIN part p ON p.rowid = s.value"
            numbers = json.dumps([row for row, _ in found[:limit]])
            rows = data.execute(_PART.format(source=source, end=end), (numbers,)).fetchall()
            parts = self._parts(data, rows)
        last = Cursor(found[limit - 1][1], found[limit - 1][0]) if len(found) > limit else None
        return PartPage(items=parts, next=None if last is None else last.text())

    def part(self, uid: str) -> Part | None:
        """Return one part that is decided; None where there is none of this uid."""
        end = "WHERE p.uid = ? AND p.verdict IS NOT NULL"
        with self.reading() as data:
            rows = data.execute(_PART.format(source="part p", end=end), (uid,)).fetchall()
            return next(iter(self._parts(data, rows)), None)

    def picture_of(self, uid: str, number: int) -> str | None:
        """Return the path of a stored picture below the folder of the station, if there is one."""
        statement = "SELECT picture FROM capture WHERE uid = ? AND number = ?"
        with self.reading() as data:
            found = data.execute(statement, (uid, number)).fetchone()
        return None if found is None else found[0]

    def _parts(self, data: sqlite3.Connection, rows: list[tuple[Value, ...]]) -> list[Part]:
        uids = json.dumps([row[0] for row in rows])
        captures: dict[str, list[Capture]] = {}
        for uid, number, camera, verdict, reason, ratio, generation, picture in data.execute(
            _CAPTURES, (uids,)
        ):
            captures.setdefault(uid, []).append(
                Capture(
                    number=number,
                    camera=camera,
                    verdict=verdict,
                    reason=None if reason is None else reason_name(reason),
                    ratio=ratio,
                    generation=generation,
                    picture=bool(picture),
                )
            )
        return [self._part(row, captures.get(str(row[0]), [])) for row in rows]

    def _part(self, row: tuple[Value, ...], captures: list[Capture]) -> Part:
        names = (
            *("uid", "at", "seq", "part_code", "accepted", "verdict", "reason", "ratio"),
            *("product", "generation", "acquire_ms", "total_ms", "reserve_ms", "simulated", "late"),
        )
        values = dict(zip(names, row, strict=False))
        review = None
        if row[15] is not None:
            review = Review.model_validate(
                dict(zip(("verdict", "note", "by", "at"), row[15:19], strict=True))
            )
        number = values["product"]
        values["reason"] = reason_name(values["reason"])
        values["product_name"] = self._names.get(number) if isinstance(number, int) else None
        flags = {name: bool(values[name]) for name in ("accepted", "simulated", "late")}
        return Part.model_validate(
            {**values, **flags, "review": review, "pinned": bool(row[19]), "captures": captures}
        )

    # ---- counts

    def counts(self, since: datetime, until: datetime, product: int | None = None) -> Counts:
        """Count the parts between two times; the pace is that of the minutes before `until`."""
        index, of_product = "part_summary", ""
        if product is not None:
            index, of_product = "part_product", " AND product = ?"
        source = f"FROM part INDEXED BY {index} WHERE at >= ? AND at < ?"
        statement = (
            f"SELECT accepted, verdict, count(*) {source}"
            f"{of_product} AND verdict IS NOT NULL GROUP BY accepted, verdict"
        )
        span = (as_stored(since), as_stored(until))
        recent = as_stored(until - timedelta(minutes=PACE_MINUTES))
        of = () if product is None else (product,)
        with self.reading() as data:
            found = {(a, v): n for a, v, n in data.execute(statement, (*span, *of))}
            pace = f"SELECT count(*) {source}{of_product} AND accepted = 1"
            parts = data.execute(pace, (recent, span[1], *of)).fetchone()[0]
        good, fail = found.get((1, "good"), 0), found.get((1, "anomalous"), 0)
        none, missed = found.get((1, "no-verdict"), 0), found.get((0, "no-verdict"), 0)
        accepted = good + fail + none
        return Counts(
            triggers=accepted + missed,
            good=good,
            fail=fail,
            no_verdict=none,
            missed=missed,
            yield_=good / accepted if accepted else None,
            pace_per_minute=parts / PACE_MINUTES,
        )

    # ---- scores over time

    def scores(
        self, since: datetime, until: datetime, *, product: int | None = None, points: int = 300
    ) -> ScoreSeries:
        """Return the lowest and the highest ratio in each of `points` equal spans of time."""
        if not 1 <= points <= MOST_POINTS:
            raise UsageError(f"a chart of {points} points", hint=f"ask for 1 to {MOST_POINTS}")
        if until <= since:
            raise UsageError("the span ends before it begins", hint="exchange the two times")
        step = (until - since) / points
        edges = [as_stored(since + k * step) for k in range(points)] + [as_stored(until)]
        spans = json.dumps(list(pairwise(edges)))
        index, of_product = "part_summary", ""
        if product is not None:
            index, of_product = "part_product", " AND p.product = ?"
        statement = _SPANS.format(index=index, product=of_product)
        of = () if product is None else (product,)
        with self.reading() as data:
            rows = data.execute(statement, (spans, *of)).fetchall()
            events = self._events(data, edges[0], edges[-1], product)
        return ScoreSeries(
            t=edges[:-1],
            low=[low for _, low, _ in rows],
            high=[high for *_, high in rows],
            threshold=[1.0] * points,
            parts=sum(number for number, *_ in rows),
            events=events,
        )

    def first_part(
        self, since: datetime, until: datetime, product: int | None = None
    ) -> datetime | None:
        """Return when the first part between two times came; None if there is none."""
        index, of_product = "part_summary", ""
        if product is not None:
            index, of_product = "part_product", " AND product = ?"
        statement = (
            f"SELECT min(at) FROM part INDEXED BY {index} WHERE at >= ? AND at < ?{of_product}"
        )
        of = () if product is None else (product,)
        with self.reading() as data:
            span = (as_stored(since), as_stored(until))
            (at,) = data.execute(statement, (*span, *of)).fetchone()
        return None if at is None else datetime.fromisoformat(at)

    def _events(
        self, data: sqlite3.Connection, since: str, until: str, product: int | None
    ) -> list[SeriesEvent]:
        numbers = [product] if product is not None else list(self._names)
        found = []
        for number in numbers:
            name = self._names.get(number, str(number))
            for at, generation in data.execute(_GENERATIONS, (number, since, until)):
                text = f"{name}: generation {generation}"
                found.append(SeriesEvent(at=at, kind="generation", text=text))
        statement = (
            "SELECT at, level, text FROM io_event WHERE level != 'info' AND at >= ? AND at < ? "
            "ORDER BY id DESC LIMIT ?"
        )
        for at, level, text in data.execute(statement, (since, until, _MOST_EVENTS)):
            kind: Literal["warning", "error"] = "error" if level == "error" else "warning"
            found.append(SeriesEvent(at=at, kind=kind, text=text))
        return sorted(found, key=lambda event: event.at)


def reason_name(number: object) -> str:
    """Return the name of a reason; one that a later version of the line wrote keeps its number.

    >>> reason_name(1), reason_name(999)
    ('DEADLINE', '999')
    """
    try:
        return Reason(int(str(number or 0))).name
    except ValueError:
        return str(number)
