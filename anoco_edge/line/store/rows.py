"""Writes what the core wants recorded into line.db, one statement for each kind of effect."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from anoco_edge.line.core.effects import (
    CaptureRecord,
    PartRecord,
    RecordAccepted,
    RecordLate,
    Say,
)
from anoco_edge.line.store.database import count, wall_time
from anoco_edge.line.words.constants import Reason

Value = str | int | float | None
_COUNTER = {"good": "good", "anomalous": "fail", "no-verdict": "no_verdict"}


@dataclass(frozen=True)
class CaptureOrigin:
    """What judged a capture: bundle, its hash, the name of the product and its generation."""

    bundle: str
    sha256: str
    product: str
    generation: int


@dataclass(frozen=True)
class PictureFile:
    """A picture that was written: the part and capture it shows, its path and its size."""

    uid: str
    number: int
    path: str
    size: int


@dataclass(frozen=True)
class PartRow:
    """A part with its outcome, and what judged each of its captures."""

    record: PartRecord
    origins: tuple[CaptureOrigin, ...] = ()


Row = RecordAccepted | PartRow | RecordLate | Say | PictureFile


@dataclass(frozen=True)
class RowWriter:
    """Writes rows of one run; every result is also put into the outbox of each sink."""

    revision: str
    sinks: tuple[str, ...] = ()

    def write(self, data: sqlite3.Connection, row: Row) -> None:
        """Write one row, in the transaction of the caller. A row that is there stays as it is."""
        if isinstance(row, RecordAccepted):
            self._accepted(data, row)
        elif isinstance(row, PartRow):
            self._part(data, row)
        elif isinstance(row, RecordLate):
            data.execute(
                "INSERT INTO late (uid, number, verdict, ratio, received_ns) VALUES (?,?,?,?,?)",
                (row.uid, row.capture, row.opinion.verdict, row.opinion.ratio, row.received_at),
            )
        elif isinstance(row, PictureFile):
            data.execute(
                "UPDATE capture SET picture = ?, bytes = ? WHERE uid = ? AND number = ?",
                (row.path, row.size, row.uid, row.number),
            )
        else:
            data.execute(
                "INSERT INTO io_event (at, level, text) VALUES (?,?,?)",
                (wall_time(), row.level, row.text),
            )

    def close_interrupted(self, data: sqlite3.Connection) -> int:
        """Decide the parts that an earlier run accepted and never decided, and tell the sinks;
        return their number."""
        with data:
            data.execute("BEGIN IMMEDIATE")
            left = data.execute(
                "UPDATE part SET verdict = 'no-verdict', reason = ? WHERE verdict IS NULL "
                "RETURNING uid, seq, part_code, client, trigger_ns",
                (int(Reason.RESTARTED),),
            ).fetchall()
            for uid, seq, code, client, at in sorted(left):
                self._offer(
                    data,
                    PartRecord(
                        *(uid, seq, code, client, True, at, at), "no-verdict", Reason.RESTARTED
                    ),
                )
            if left:
                count(data, "no_verdict", len(left))
        return len(left)

    def _accepted(self, data: sqlite3.Connection, row: RecordAccepted) -> None:
        done = data.execute(
            "INSERT OR IGNORE INTO part (uid, seq, part_code, client, accepted, at, trigger_ns, "
            "config) VALUES (?,?,?,'',1,?,?,?)",
            (row.uid, row.seq, row.part_code, wall_time(), row.trigger_at, self.revision),
        )
        if done.rowcount:
            count(data, "triggers")

    def _part(self, data: sqlite3.Connection, row: PartRow) -> None:
        record = row.record
        known = data.execute("SELECT verdict FROM part WHERE uid = ?", (record.uid,)).fetchone()
        if known is not None and known[0] is not None:
            return
        if known is None:
            count(data, "triggers")
        count(data, _COUNTER[record.verdict] if record.accepted else "missed")
        product = record.product
        values: dict[str, Value] = {
            "uid": record.uid,
            "seq": record.seq,
            "part_code": record.part_code,
            "client": record.client,
            "accepted": int(record.accepted),
            "at": wall_time(),
            "trigger_ns": record.trigger_at,
            "decided_ns": record.decided_at,
            "verdict": record.verdict,
            "reason": int(record.reason),
            "ratio": record.ratio,
            "product": product.number if product else None,
            "generation": product.generation if product else None,
            "checksum": product.checksum if product else None,
            "acquire_ms": record.acquire_ms,
            "total_ms": record.total_ms,
            "reserve_ms": record.reserve_ms,
            "simulated": int(record.simulated),
            "config": self.revision,
        }
        if known is None:
            _insert(data, "part", values)
        else:
            kept = {name: value for name, value in values.items() if name not in ("uid", "at")}
            names = ", ".join(f"{name} = :{name}" for name in kept)
            data.execute(f"UPDATE part SET {names} WHERE uid = :uid", values)
        for number, capture in enumerate(record.captures):
            origin = row.origins[number] if number < len(row.origins) else None
            _insert(data, "capture", _capture_values(record.uid, number, capture, origin))
        self._offer(data, record)

    def _offer(self, data: sqlite3.Connection, record: PartRecord) -> None:
        body = json.dumps(part_message(record), sort_keys=True)
        for sink in self.sinks:
            data.execute(
                "INSERT OR IGNORE INTO outbox (sink, uid, body) VALUES (?,?,?)",
                (sink, record.uid, body),
            )


def part_message(record: PartRecord) -> dict[str, Value]:
    """Return the message about a part that sinks send and HTTP answers with.

    >>> from anoco_edge.line.words.constants import Reason
    >>> record = PartRecord("r1-000001", 7, "A1", "", True, 0, 5, "no-verdict", Reason.DEADLINE)
    >>> message = part_message(record)
    >>> message["uid"], message["seq"], message["verdict"], message["reason"]
    ('r1-000001', 7, 'no-verdict', 'DEADLINE')
    """
    return {
        "uid": record.uid,
        "seq": record.seq,
        "part_code": record.part_code,
        "accepted": record.accepted,
        "verdict": record.verdict,
        "reason": record.reason.name,
        "ratio": round(record.ratio, 6),
        "product": record.product.number if record.product else None,
        "generation": record.product.generation if record.product else None,
        "acquire_ms": record.acquire_ms,
        "total_ms": record.total_ms,
        "reserve_ms": record.reserve_ms,
        "simulated": record.simulated,
    }


def _capture_values(
    uid: str, number: int, capture: CaptureRecord, origin: CaptureOrigin | None
) -> dict[str, Value]:
    opinion = capture.opinion
    return {
        "uid": uid,
        "number": number,
        "camera": capture.camera,
        "counter": capture.frame.counter if capture.frame else None,
        "exposed_from": capture.exposed_from if capture.frame else None,
        "exposed_to": capture.exposed_to if capture.frame else None,
        "verdict": opinion.verdict if opinion else None,
        "reason": int(opinion.reason) if opinion else None,
        "ratio": opinion.ratio if opinion else None,
        "bundle": origin.bundle if origin else None,
        "bundle_sha256": origin.sha256 if origin else None,
        "product": origin.product if origin else None,
        "generation": origin.generation if origin else None,
    }


def _insert(data: sqlite3.Connection, table: str, values: dict[str, Value]) -> None:
    names = ", ".join(values)
    marks = ", ".join(f":{name}" for name in values)
    data.execute(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})", values)
