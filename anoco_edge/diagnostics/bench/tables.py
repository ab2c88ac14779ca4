"""Writes figures as tables: Markdown, CSV, or for a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from anoco_edge.diagnostics.bench.frames import FrameBench
from anoco_edge.diagnostics.bench.scoring import ScoringBench, ScoringRow
from anoco_edge.text.plain_text import csv_cell, plain_text

if TYPE_CHECKING:
    from rich.table import Table

TableRow = Mapping[str, object]


def frame_rows(bench: FrameBench) -> list[TableRow]:
    """Make one row for each stage, in milliseconds."""
    return [{"stage": name, **asdict(summary)} for name, summary in bench.stages.items()]


def scoring_rows(bench: ScoringBench) -> list[TableRow]:
    """Make one row for each scorer and rival, as it is written to CSV."""
    return [asdict(row) for row in bench.rows]


def scoring_tables(bench: ScoringBench) -> dict[str, list[TableRow]]:
    """Make narrow tables for people, one for all scorers and rivals on the same features."""
    tables: dict[str, list[TableRow]] = {}
    for row in bench.rows:
        neighbors = " / ".join(map(str, row.neighbors))
        title = f"{row.features} {row.size}, neighbours {neighbors} (median, 95 %, most)"
        tables.setdefault(title, []).append(
            {
                "what": row.name,
                "ms": f"{row.median_ms:.1f}",
                "x sgemm": f"{row.ratio:.2f}",
                "find + solve": _split(row),
                "extra MB": _memory(row),
                "against the reference": _agreement(row),
            }
        )
    return tables


def markdown(rows: Sequence[TableRow]) -> str:
    """Write a Markdown table.

    >>> print(markdown([{"stage": "map", "p50": 1.234}]))
    | stage | p50 |
    |---|---:|
    | map | 1.23 |
    """
    columns = list(rows[0])
    numeric = [all(_is_number(row[c]) for row in rows) for c in columns]
    lines = [
        f"| {' | '.join(columns)} |",
        "|" + "|".join("---:" if number else "---" for number in numeric) + "|",
    ]
    lines += [f"| {' | '.join(_text(row[c]) for c in columns)} |" for row in rows]
    return "\n".join(lines)


def csv_text(rows: Sequence[TableRow]) -> str:
    """Write comma-separated values with a header.

    >>> csv_text([{"stage": "map", "p50": 1.25, "extra_mb": None}]).splitlines()
    ['stage,p50,extra_mb', 'map,1.25,']
    """
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)
    return stream.getvalue()


def rich_table(rows: Sequence[TableRow], title: str) -> Table:
    """Make a table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for position, column in enumerate(rows[0]):
        number = all(_is_number(row[column]) for row in rows)
        # The last column may wrap; the others are read at a glance.
        whole = position < len(rows[0]) - 1
        table.add_column(column, justify="right" if number else "left", no_wrap=whole)
    for row in rows:
        table.add_row(*(Text(plain_text(_text(value))) for value in row.values()))
    return table


def facts(settings: Mapping[str, object]) -> list[str]:
    """Write settings as lines of `name: value`.

    >>> facts({"threads": 2, "versions": {"numpy": "2.0"}})
    ['threads: 2', 'versions: numpy 2.0']
    """
    return [
        f"{name}: " + (", ".join(f"{k} {v}" for k, v in value.items()))
        if isinstance(value, Mapping)
        else f"{name}: {value}"
        for name, value in settings.items()
    ]


def _split(row: ScoringRow) -> str:
    """Say where the time goes, in units of the bare sgemm."""
    if row.retrieval is None:
        return "-"
    return f"{row.ratio * row.retrieval:.2f} + {row.ratio * (1 - row.retrieval):.2f}"


def _memory(row: ScoringRow) -> str:
    if row.extra_mb is None:
        return "-"
    budget = "" if row.budget_mb is None else f" of {row.budget_mb:.0f}"
    return f"{row.extra_mb:.0f}{budget}"


def _agreement(row: ScoringRow) -> str:
    if row.disagree is None or row.undecided is None:
        return "is the reference" if row.name == "reference" else "-"
    return f"{row.disagree} disagree, {100 * row.undecided:.2f} % undecided"


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        return value.replace(".", "", 1).isdigit()
    return isinstance(value, (int, float))
