"""The SQL that searches a station's parts, a page at a time.

A page begins after the last row of the page before (its time and its row number), so that the
hundredth page costs as much as the first, and parts that come meanwhile move nothing.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal

from anoco_edge.errors import UsageError
from anoco_edge.line.words.constants import Reason

Value = str | int | float | None
ReviewFilter = Literal["none", "good", "missed", "defect"]
LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True)
class PartFilter:
    """What the parts of a search have in common; None leaves a field open.

    `code` ends in `*` to find all part codes that begin so. Times are those of `at`.
    """

    verdict: str | None = None
    reason: str | None = None
    product: int | None = None
    code: str | None = None
    seq: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_ratio: float | None = None
    max_ratio: float | None = None
    review: ReviewFilter | None = None
    pinned: bool | None = None


@dataclass(frozen=True)
class Cursor:
    """The last row of a page.

    >>> Cursor.parse(Cursor("2026-11-18T20:00:00.000+00:00", 7).text()).row
    7
    >>> Cursor.parse("nonsense")
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: 'nonsense' is not the end of a page; take 'next' of the page ...
    """

    at: str
    row: int

    def text(self) -> str:
        """Return the cursor as text that fits into an address."""
        return base64.urlsafe_b64encode(f"{self.row} {self.at}".encode()).decode().rstrip("=")

    @staticmethod
    def parse(text: str) -> Cursor:
        """Read what `text` wrote."""
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
            row, _, at = raw.partition(" ")
            datetime.fromisoformat(at)
            return Cursor(at, _row_number(row))
        except (ValueError, binascii.Error):
            raise UsageError(
                f"{text[:40]!r} is not the end of a page", hint="take 'next' of the page before"
            ) from None


def _row_number(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**63:
        raise ValueError
    return number


def as_stored(moment: datetime) -> str:
    """Return a time as the column `at` holds it, which sorts as text.

    >>> as_stored(datetime(2026, 11, 18, 21, tzinfo=timezone.utc))
    '2026-11-18T21:00:00.000+00:00'
    """
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds")


def page_query(wanted: PartFilter, after: Cursor | None, limit: int) -> tuple[str, list[Value]]:
    """Return the statement for one page, the newest part first, and its values.

    It gives row number and time alone, which an index holds; the rows are read by their numbers.
    """
    source, clauses, values = _source(wanted)
    clauses += ["p.verdict IS NOT NULL"] if wanted.verdict is None else []
    for clause, value in _conditions(wanted):
        clauses.append(clause)
        values.append(value)
    if wanted.code is not None:
        clause, bounds = _code(wanted.code)
        clauses.append(clause)
        values += bounds
    if after is not None:
        clauses.append("(p.at, p.rowid) < (?, ?)")
        values += [after.at, after.row]
    where = " AND ".join(clauses)
    order = "ORDER BY p.at DESC, p.rowid DESC LIMIT ?"
    return f"SELECT p.rowid, p.at FROM {source} WHERE {where} {order}", [*values, limit]


def _source(wanted: PartFilter) -> tuple[str, list[str], list[Value]]:
    """Where a search begins: at the few parts with a pin or a review, or else at all parts."""
    clauses: list[str] = []
    values: list[Value] = []
    review = "EXISTS (SELECT 1 FROM station.review r WHERE r.uid = p.uid{})"
    pin = "EXISTS (SELECT 1 FROM station.pin n WHERE n.uid = p.uid)"
    source = _all_parts(wanted)
    few = False
    if wanted.review == "none":
        clauses.append(f"NOT {review.format('')}")
    elif wanted.review is not None:
        source, few = "station.review r CROSS JOIN part p ON p.uid = r.uid", True
        clauses.append("r.verdict = ?")
        values.append(wanted.review)
    if wanted.pinned and not few:
        source = "station.pin n CROSS JOIN part p ON p.uid = n.uid"
    elif wanted.pinned is not None:
        clauses.append(pin if wanted.pinned else f"NOT {pin}")
    return source, clauses, values


def _all_parts(wanted: PartFilter) -> str:
    """All parts. Ratios are compared in a summary, which holds them, and not row by row."""
    if wanted.min_ratio is None and wanted.max_ratio is None:
        return "part p"
    if (wanted.reason, wanted.code, wanted.seq) != (None, None, None):
        return "part p"  # of these there are few
    index = "part_summary" if wanted.product is None else "part_product"
    return f"part p INDEXED BY {index}"


def _conditions(wanted: PartFilter) -> list[tuple[str, Value]]:
    reason = None if wanted.reason is None else _reason(wanted.reason)
    found: list[tuple[str, Value]] = [
        ("p.verdict = ?", wanted.verdict),
        ("p.reason = ?", reason),
        ("p.product = ?", wanted.product),
        ("p.seq = ?", wanted.seq),
        ("p.at >= ?", None if wanted.since is None else as_stored(wanted.since)),
        ("p.at < ?", None if wanted.until is None else as_stored(wanted.until)),
        ("p.ratio >= ?", wanted.min_ratio),
        ("p.ratio <= ?", wanted.max_ratio),
    ]
    return [(clause, value) for clause, value in found if value is not None]


def _reason(name: str) -> int:
    try:
        return int(Reason[name])
    except KeyError:
        raise UsageError(
            f"{name[:40]!r} is not a reason",
            hint=f"the reasons are {', '.join(Reason.__members__)}",
        ) from None


def _code(code: str) -> tuple[str, list[Value]]:
    if not code.endswith("*"):
        return "p.part_code = ?", [code]
    begin = code[:-1]
    return "p.part_code >= ? AND p.part_code < ?", [begin, begin + LAST_CHARACTER]
