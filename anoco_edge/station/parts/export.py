"""Writes the parts of a search as CSV, a piece at a time, however many there are."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from anoco_edge.station.parts.history import MOST_PARTS, History
from anoco_edge.station.parts.part_models import Part
from anoco_edge.station.parts.part_search import PartFilter

COLUMNS = (
    *("uid", "at", "seq", "part_code", "accepted", "verdict", "reason", "ratio", "product"),
    *("product_name", "generation", "acquire_ms", "total_ms", "reserve_ms", "simulated", "late"),
    *("review", "note", "pinned"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
Cell = str | int | float | None


def csv_pieces(history: History, wanted: PartFilter) -> Iterator[bytes]:
    """Yield the header and then the parts, page by page; no question stays open between two."""
    yield _lines([list(COLUMNS)])
    after: str | None = None
    while True:
        page = history.search(wanted, after=after, limit=MOST_PARTS)
        if page.items:
            yield _lines([_cells(part) for part in page.items])
        if page.next is None:
            return
        after = page.next


def _cells(part: Part) -> list[Cell]:
    values: dict[str, Cell] = part.model_dump(exclude={"review", "captures"})
    values["review"] = part.review.verdict if part.review else ""
    values["note"] = _plain(part.review.note) if part.review else ""
    values["part_code"] = _plain(part.part_code)
    return [int(v) if isinstance(v, bool) else v for v in (values[name] for name in COLUMNS)]


def _plain(text: str) -> str:
    """Keep a spreadsheet from taking what somebody typed for a formula.

    >>> _plain("=HYPERLINK(1)"), _plain("W-17")
    ("'=HYPERLINK(1)", 'W-17')
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def _lines(rows: list[list[Cell]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue().encode()
