"""Shows a run: a table for pictures, a line for each frame that is not good, or JSON.

The classes are sinks: they receive the rows of a run one by one, and its summary at the end.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Column, Table

from anoco_edge.cli.console import emit_json, err, note, out, plain, progress, warn

if TYPE_CHECKING:
    from anoco_edge.detector import Detector
    from anoco_edge.images.frame import Frame
    from anoco_edge.pipeline.base import ProductSnapshot
    from anoco_edge.results.overlay import Overlay
    from anoco_edge.results.rows import Row
    from anoco_edge.results.summary import RunSummary

COLORS = {"good": "green", "anomalous": "red", "uncalibrated": "yellow", None: "magenta"}
SHOWN_ROWS = 60


class VerdictTable:
    """Shows a table of verdicts and one line about the run when it has ended."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._rows: list[Row] = []

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> None:
        """Remember the row for the table."""
        self._rows.append(row)

    def finish(self, summary: RunSummary) -> None:
        """Show the table and the summary."""
        show_rows(self._rows, self._kind)
        show_summary(summary, live=False, kind=self._kind)


class JsonDocument:
    """Prints one JSON object with the summary and all rows when the run has ended."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> None:
        """Remember the row."""
        self._rows.append(row)

    def finish(self, summary: RunSummary) -> None:
        """Print the object."""
        rows = [row.to_json() for row in self._rows]
        emit_json({"summary": summary.to_json(), "results": rows})


class FrameLines:
    """Shows a line for each frame of a live source that is not good, at once."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> None:
        """Show the frame if it is not good."""
        if row.verdict == "good":
            return
        what = f"{row.ratio:.2f}x" if row.ratio else row.error or ""
        provisional = row.verdict is not None and self._kind == "provisional"
        out.print(
            f"[{COLORS[row.verdict]}]{row.verdict or 'failed'}[/] "
            f"{plain(row.source)} {plain(what)}" + (" (provisional)" if provisional else "")
        )

    def finish(self, summary: RunSummary) -> None:
        """Show the summary."""
        show_summary(summary, live=True, kind=self._kind)


class DetectorRemarks:
    """Repeats each remark of the detector once; some are known after the first picture only."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._said: set[str] = set()

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> None:
        """Print the remarks that are new since the last picture."""
        for text in self._detector.remarks:
            if text not in self._said:
                self._said.add(text)
                warn(text)

    def finish(self, summary: RunSummary) -> None:
        """Do nothing, because all remarks are printed already."""


class ProgressBar:
    """A bar that advances with each row and disappears at the end of the run.

    As the last sink of a run it is the first to be finished, so that the others print without it.
    """

    def __init__(self, title: str, total: int | None) -> None:
        self._bar = ExitStack()
        self._step = self._bar.enter_context(progress(title, total))

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> None:
        """Advance the bar by one."""
        self._step()

    def finish(self, summary: RunSummary) -> None:
        """Remove the bar."""
        self._bar.close()


def remark_threshold(snapshot: Detector | ProductSnapshot) -> None:
    """Say how reliable the verdicts are, if that is less than it seems."""
    if snapshot.threshold is None:
        warn("the product has no threshold: every verdict is 'uncalibrated'")
    elif snapshot.threshold_kind == "provisional":
        value = f"{snapshot.threshold:.4g}"
        note(f"threshold {value} is provisional: it rests on the references alone")


def say_kept(earlier: Path | None) -> None:
    """Say where the run is now that was in the folder before this one."""
    if earlier is not None:
        note(f"the earlier run is kept in {earlier}")


def show_rows(rows: Sequence[Row], kind: str) -> None:
    """Show the table of verdicts; when there are many rows, only those that are not good."""
    from anoco_edge.results.rows import FailedRow

    shown = rows if len(rows) <= SHOWN_ROWS else [r for r in rows if r.verdict != "good"]
    verdict = "provisional verdict" if kind == "provisional" else "verdict"
    heading = Column(verdict, min_width=len("uncalibrated"))
    table = Table("id", Column("picture", overflow="fold"), heading, "score", "ratio", "regions")
    table.add_column("closest reference", overflow="fold")
    folder, names = short_names([row.source for row in shown[:SHOWN_ROWS]])
    table.caption = f"pictures in {plain(folder)}" if folder else None
    for row, name in zip(shown, names, strict=False):
        verdict = f"[{COLORS[row.verdict]}]{row.verdict or 'failed'}[/]"
        if isinstance(row, FailedRow):
            table.add_row(str(row.id), plain(name), verdict)
            continue
        found = row.evidence
        table.add_row(
            str(row.id),
            plain(name),
            verdict,
            f"{row.score:.4g}",
            f"{row.ratio:.2f}" if row.ratio is not None else "-",
            str(len(row.regions)),
            plain(f"{found.reference} ({found.similarity:.2f})") if found else "-",
        )
    if shown:
        out.print(table)
    if len(shown) > SHOWN_ROWS:
        note(f"{len(shown) - SHOWN_ROWS} more rows are in results.jsonl (--out)")
    errors = [row.error for row in rows if row.error is not None]
    if len(errors) > 1:  # a single one is named in the last line
        for error in errors:
            err.print(f"[magenta]failed:[/magenta] {plain(error)}", soft_wrap=True)


def short_names(sources: list[str]) -> tuple[str, list[str]]:
    """Split the names of pictures into the folder that all share and the rest of each name.

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


def show_summary(summary: RunSummary, *, live: bool, kind: str) -> None:
    """Show the run in one line."""
    parts = [f"{summary.pictures} inspected"]
    for name in ("good", "anomalous", "uncalibrated", "failed"):
        if count := getattr(summary, name):
            color = COLORS.get(None if name == "failed" else name, "white")
            parts.append(f"[{color}]{count} {name}[/]")
    if live:
        parts.append(f"{summary.skipped} frames skipped")
    rate = summary.pictures / summary.seconds if summary.seconds else 0
    basis = ", by a provisional threshold" if kind == "provisional" else ""
    text = f"{', '.join(parts)} in {summary.seconds:.1f} s ({rate:.1f} a second){basis}"
    moved = str(summary.drift or "")
    out.print(f"{text}; [yellow]{moved}[/]" if moved else text, soft_wrap=True)
