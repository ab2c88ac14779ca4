"""The figures of `anoco-edge bench`, as tables, Markdown, JSON or CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING

from anoco_edge.cli.console import emit_json, out

if TYPE_CHECKING:
    from anoco_edge.diagnostics.bench.frames import FrameBench
    from anoco_edge.diagnostics.bench.rival_frames import RivalBench
    from anoco_edge.diagnostics.bench.scoring import ScoringBench
    from anoco_edge.line.bench.latency import LineBench


class Format(str, Enum):
    """How the figures are written."""

    table = "table"
    md = "md"
    json = "json"
    csv = "csv"


def show_frame_bench(result: FrameBench, form: Format) -> None:
    """Print the time of a frame by stages, the throughput and the memory."""
    from anoco_edge.diagnostics.bench.tables import (
        csv_text,
        facts,
        frame_rows,
        markdown,
        rich_table,
    )

    rows, memory = frame_rows(result), result.memory
    words = [
        f"{result.in_words()}; {result.throughput:.1f} frames a second",
        f"memory: {memory.loaded_mb:.0f} MB loaded, {memory.peak_mb:.0f} MB at most, "
        f"{memory.growth_mb:.0f} MB more while running",
    ]
    if form is Format.json:
        emit_json(result.to_dict())
    elif form is Format.csv:
        out.file.write(csv_text(rows))
    elif form is Format.md:
        lines = [markdown(rows), "", *words, "", *(f"- {f}" for f in facts(result.settings))]
        out.file.write("\n".join(lines) + "\n")
    else:
        out.print(rich_table(rows, "milliseconds a frame"))
        _print_lines([*words, "", *facts(result.settings)])


def show_scoring_bench(result: ScoringBench, form: Format) -> None:
    """Print the times of scorers beside those of their rivals."""
    from anoco_edge.diagnostics.bench.tables import (
        csv_text,
        facts,
        markdown,
        rich_table,
        scoring_rows,
        scoring_tables,
    )

    if form is Format.json:
        emit_json(asdict(result))
    elif form is Format.csv:
        out.file.write(csv_text(scoring_rows(result)))
    elif form is Format.md:
        tables = scoring_tables(result).items()
        lines = [f"{title}\n\n{markdown(rows)}\n" for title, rows in tables]
        lines += [f"- {fact}" for fact in facts(result.settings)]
        out.file.write("\n".join(lines) + "\n")
    else:
        for title, rows in scoring_tables(result).items():
            out.print(rich_table(rows, title))
        _print_lines(["median of interleaved runs", *facts(result.settings)])


def show_rival_bench(result: RivalBench, form: Format) -> None:
    """Print our frames beside those of anomalib."""
    from anoco_edge.diagnostics.bench.tables import csv_text, facts, markdown, rich_table

    rows = [asdict(row) for row in result.rows]
    if form is Format.json:
        emit_json(result.to_dict())
    elif form is Format.csv:
        out.file.write(csv_text(rows))
    elif form is Format.md:
        lines = [markdown(rows), "", *(f"- {fact}" for fact in facts(result.settings))]
        out.file.write("\n".join(lines) + "\n")
    else:
        out.print(rich_table(rows, "milliseconds a frame, in turn"))
        _print_lines(facts(result.settings))


def show_line_bench(result: LineBench, form: Format) -> None:
    """Print the latency of a line by bus."""
    from anoco_edge.diagnostics.bench.tables import csv_text, facts, markdown, rich_table
    from anoco_edge.line.bench.latency import MEANINGS

    rows = [
        {"bus": row.bus, "what": row.what, "parts": row.parts, **asdict(row.milliseconds)}
        for row in result.rows
    ]
    if form is Format.json:
        emit_json(result.to_dict())
    elif form is Format.csv:
        out.file.write(csv_text(rows))
    elif form is Format.md:
        words = [*MEANINGS, *facts(result.settings)]
        out.file.write("\n".join([markdown(rows), "", *(f"- {line}" for line in words)]) + "\n")
    else:
        shown = [{k: row[k] for k in ("bus", "what", "p50", "p99", "max")} for row in rows]
        out.print(rich_table(shown, "milliseconds a part"))
        _print_lines([*MEANINGS, *facts(result.settings)])


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        out.print(line, soft_wrap=True, markup=False)
