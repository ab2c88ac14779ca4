"""How verdicts are shown: a table for pictures, a line for each frame that is not good."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Column, Table

from anoco_edge.cli.console import err, note, out, plain, warn
from anoco_edge.cli.views.drift import in_words
from anoco_edge.text.plain_text import plain_json

if TYPE_CHECKING:
    from anoco_edge.detector import Detector
    from anoco_edge.drift import DriftWatch
    from anoco_edge.pipeline.base import ProductSnapshot
    from anoco_edge.results import ResultFolder, Summary
    from anoco_edge.sinks.folder import Shown

COLORS = {"good": "green", "anomalous": "red", "uncalibrated": "yellow", None: "magenta"}
SHOWN_ROWS = 60
Row = dict[str, Any]


def remark_threshold(snapshot: Detector | ProductSnapshot) -> None:
    """What verdicts are worth, where that is less than they seem."""
    if snapshot.threshold is None:
        warn("the product has no threshold: every verdict is 'uncalibrated'")
    elif snapshot.threshold_kind == "provisional":
        value = f"{snapshot.threshold:.4g}"
        note(f"threshold {value} is provisional: it rests on the references alone")


def remarker(detector: Detector) -> Callable[[], None]:
    """Says each of the detector's remarks once; call it after a picture."""
    said: set[str] = set()

    def say() -> None:
        for text in detector.remarks:
            if text not in said:
                said.add(text)
                warn(text)

    return say


def say_kept(earlier: Path | None) -> None:
    """Where the run is that was in the folder before this one."""
    if earlier is not None:
        note(f"the earlier run is kept in {earlier}")


def show_frame(row: Row, json_: bool) -> None:
    """One frame of a live source, as it comes."""
    if json_:
        json_line(row)
    elif row["verdict"] != "good":
        ratio = f"{row['ratio']:.2f}x" if row.get("ratio") else row.get("error", "")
        out.print(
            f"[{COLORS[row['verdict']]}]{row['verdict'] or 'failed'}[/] "
            f"{plain(row['source'])} {plain(ratio)}"
            + (" (provisional)" if row.get("threshold_kind") == "provisional" else "")
        )


def json_line(value: Row) -> None:
    """One JSON object a line, out at once."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    out.file.write(plain_json(text) + "\n")
    out.file.flush()


def show_rows(rows: list[Row], kind: str) -> None:
    """The table of verdicts; when there are many, those that are not good."""
    shown = rows if len(rows) <= SHOWN_ROWS else [r for r in rows if r["verdict"] != "good"]
    verdict = "provisional verdict" if kind == "provisional" else "verdict"
    heading = Column(verdict, min_width=len("uncalibrated"))
    table = Table("id", Column("picture", overflow="fold"), heading, "score", "ratio", "regions")
    table.add_column("closest reference", overflow="fold")
    folder, names = short_names([row["source"] for row in shown[:SHOWN_ROWS]])
    table.caption = f"pictures in {plain(folder)}" if folder else None
    for row, name in zip(shown, names, strict=False):
        colour, verdict = COLORS[row["verdict"]], row["verdict"] or "failed"
        if row["verdict"] is None:
            table.add_row(str(row["id"]), plain(name), f"[{colour}]{verdict}[/]")
            continue
        evidence = row["evidence"] or {}
        table.add_row(
            str(row["id"]),
            plain(name),
            f"[{colour}]{verdict}[/]",
            f"{row['score']:.4g}",
            f"{row['ratio']:.2f}" if row["ratio"] is not None else "-",
            str(len(row["regions"])),
            plain(f"{evidence['reference']} ({evidence['similarity']:.2f})") if evidence else "-",
        )
    if shown:
        out.print(table)
    if len(shown) > SHOWN_ROWS:
        note(f"{len(shown) - SHOWN_ROWS} more rows are in results.jsonl (--out)")
    failed = [row for row in rows if row["verdict"] is None]
    if len(failed) > 1:  # a single one is named in the last line
        for row in failed:
            err.print(f"[magenta]failed:[/magenta] {plain(row['error'])}", soft_wrap=True)


def short_names(sources: list[str]) -> tuple[str, list[str]]:
    """The folder that all pictures share, and what is left of their names.

    >>> short_names(["/data/line3/good/1.png", "/data/line3/bad/2.png"])
    ('/data/line3', ['good/1.png', 'bad/2.png'])
    >>> short_names(["camera:0#1"])
    ('', ['camera:0#1'])
    """
    folders = [os.path.dirname(source) for source in sources]  # noqa: PTH120 (text, not files)
    try:
        shared = os.path.commonpath(folders) if all(folders) else ""
    except ValueError:  # relative and absolute ones
        shared = ""
    if not shared:
        return "", sources
    return shared, [os.path.relpath(source, shared) for source in sources]


def show_summary(summary: Summary, *, live: bool, kind: str) -> None:
    """The run in one line."""
    parts = [f"{summary.pictures} inspected"]
    for name in ("good", "anomalous", "uncalibrated", "failed"):
        if count := getattr(summary, name):
            colour = COLORS.get(None if name == "failed" else name, "white")
            parts.append(f"[{colour}]{count} {name}[/]")
    if live:
        parts.append(f"{summary.skipped} frames skipped")
    rate = summary.pictures / summary.seconds if summary.seconds else 0
    basis = ", by a provisional threshold" if kind == "provisional" else ""
    text = f"{', '.join(parts)} in {summary.seconds:.1f} s ({rate:.1f} a second){basis}"
    moved = in_words(summary.drift)
    out.print(f"{text}; [yellow]{moved}[/]" if moved else text, soft_wrap=True)


def write_report(
    folder: ResultFolder,
    snapshot: Detector | ProductSnapshot,
    summary: Summary,
    watch: DriftWatch | None,
    title: str,
    shown: Iterable[Shown] | None = None,
) -> Path:
    """report.html, with what the drift watch has to say."""
    figures: dict[str, object] = {"skipped": summary.skipped}
    if watch is not None:
        figures["drift"] = watch.state
    warning = str(watch.warned) if watch and watch.warned else ""
    return folder.finish(snapshot, figures, title, warning=warning, shown=shown)
