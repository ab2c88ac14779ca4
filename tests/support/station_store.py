"""The folder of a station with many parts, written straight into its two data bases."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

from anoco_edge.line.store.database import open_database
from anoco_edge.station.database import Database
from anoco_edge.station.parts.part_search import PartFilter

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
_SECONDS = int(BEGIN.timestamp())
# Every hundredth part is a reject, every thousandth has no verdict, every 999th was refused;
# products 1 and 2 take turns of 5000 parts, with a new generation every 50000.
_PARTS = f"""
WITH RECURSIVE number (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n + 1 < ?),
kind (n, kind) AS (
    SELECT n, CASE WHEN n % 999 = 5 THEN 'refused' WHEN n % 1000 = 3 THEN 'late'
        WHEN n % 100 = 7 THEN 'reject' ELSE 'good' END FROM number
)
INSERT INTO part SELECT printf('press-3-1-%07d', n), n % 65535 + 1, 'W' || n, '', kind != 'refused',
    strftime('%Y-%m-%dT%H:%M:%S', {_SECONDS} + n / 10, 'unixepoch')
        || printf('.%d00+00:00', n % 10),
    0, 9, CASE kind WHEN 'good' THEN 'good' WHEN 'reject' THEN 'anomalous' ELSE 'no-verdict' END,
    CASE kind WHEN 'late' THEN 1 WHEN 'refused' THEN 40 ELSE 0 END,
    CASE kind WHEN 'good' THEN 0.2 + (n % 97) / 200.0 WHEN 'reject' THEN 1.0 + (n % 13) / 5.0
        ELSE 0.0 END,
    1 + n / 5000 % 2, 1 + n / 50000, 7, 10, 20, 30, 0, 'c0ffee' FROM kind
"""
_CAPTURES = """
INSERT INTO capture (uid, number, camera, verdict, reason, ratio, bundle, bundle_sha256, product,
    generation)
SELECT uid, 0, 'top', verdict, reason, ratio, 'line.anoco', 'ab', 'nut', generation FROM part
WHERE accepted = 1
"""


def uid(number: int) -> str:
    return f"press-3-1-{number:07d}"


def moment(number: int) -> datetime:
    """The time of a part: ten a second."""
    return BEGIN + timedelta(milliseconds=100 * number)


def make_store(folder: Path, parts: int) -> Path:
    """Make line.db with so many parts, and station.db."""
    with closing(open_database(folder, print)) as data:
        data.execute("PRAGMA synchronous = OFF")
        data.execute("BEGIN")
        data.execute(_PARTS, (parts,))
        data.execute(_CAPTURES)
        data.execute("COMMIT")
    Database(folder).close()
    return folder


FILTERS = [
    *(PartFilter(), PartFilter(verdict="anomalous"), PartFilter(reason="BUSY"), PartFilter(seq=1)),
    *(PartFilter(product=1), PartFilter(product=1, verdict="good"), PartFilter(code="W17")),
    *(PartFilter(since=moment(5)), PartFilter(until=moment(5)), PartFilter(min_ratio=9.0)),
    *(PartFilter(review="none", verdict="anomalous"), PartFilter(verdict="good", min_ratio=9.0)),
]
"""Searches of every kind, none of which may read more rows than it shows."""
