"""The result folder: results.jsonl, results.csv, overlays and report.html.

Rows are written as they come, so that a run that ends early loses nothing.
"""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.errors import UsageError
from anoco_edge.images.frame import Frame
from anoco_edge.results.atomic_lines import WholeLines
from anoco_edge.results.earlier_runs import (
    all_runs,
    keep_earlier_run,
    lock_folder,
    next_segment,
    refuse_fleet,
)
from anoco_edge.results.json_text import json_line
from anoco_edge.results.overlay import Overlay, draw_for_row
from anoco_edge.results.report_page import Entry, thumbnail, write_report_page
from anoco_edge.results.rows import FailedRow, ResultRow, Row
from anoco_edge.results.sink import RunInfo
from anoco_edge.results.storage_errors import writing_results
from anoco_edge.results.summary import RunSummary
from anoco_edge.sinks import LIVE_KEEP
from anoco_edge.storage.atomic_files import sync_folder
from anoco_edge.text.plain_text import csv_cell

SavePolicy = Literal["anomalous", "all", "none"]

MAX_RESULTS_BYTES = 100_000_000  # then results.jsonl and .csv become results.0001.jsonl and .csv
EMBEDDED_OVERLAYS = 200  # inside report.html; further ones are linked
LIVE_REPORT_ROWS = 2000

_COLUMNS = (
    *("id", "source", "verdict", "score", "threshold", "threshold_kind", "ratio"),
    *("regions", "x0", "y0", "x1", "y1", "reference", "similarity", "total_ms", "drift", "error"),
)


@dataclass(frozen=True)
class ReportPicture:
    """What report.html needs of one picture; the overlay itself stays on the disk."""

    row: Row
    thumbnail: bytes | None
    overlay: str | None


class ResultFolder:
    """The sink that keeps one run in a folder.

    An earlier run in the folder moves to runs/0001; `earlier` says where it is now. `keep` limits
    how many overlays of all runs in the folder are kept, 0 keeps all. With `continues` the folder
    holds what was done of this same run, and its rows are written again from the first. `report` is
    the path of report.html once it is written.
    """

    def __init__(
        self,
        folder: Path,
        run: RunInfo | None = None,
        *,
        save: SavePolicy = "anomalous",
        keep: int = 0,
        continues: bool = False,
    ) -> None:
        self.folder = folder
        self.report: Path | None = None
        self._run = run or RunInfo()
        self._save: SavePolicy = save
        self._keep = keep
        self._saved: dict[Path, list[Path]] = {}  # the files of each overlay, oldest first
        most = LIVE_REPORT_ROWS if self._run.live else None
        self._pictures: deque[ReportPicture] = deque(maxlen=most)
        with writing_results(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.earlier: Path | None = None
            self._release: Callable[[], object] = lambda: None
            if not continues:
                self._release = lock_folder(folder, self)
                refuse_fleet(folder)
                self.earlier = keep_earlier_run(folder)
            self._open()
            if keep:  # overlays of earlier runs count too, because a service restarts many times
                self._remember_earlier()

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> Row:
        """Write the row, and keep of the picture what the policy says.

        The returned row names the files that were kept.
        """
        with writing_results(self.folder):
            if (
                overlay is not None
                and isinstance(row, ResultRow)
                and wants_overlay(self._save, row)
            ):
                row = self._keep_pictures(row, frame.rgb, overlay)
            self._write(row)
        kept = row.overlay if isinstance(row, ResultRow) else None
        # Of a live source only the latest rows are shown, and it has no end: a thumbnail of every
        # frame would be work for nothing. Frames whose overlay is kept are shown with one.
        small = None
        if frame.rgb is not None and (kept is not None or not self._run.live):
            small = thumbnail(frame.rgb)
        self._pictures.append(ReportPicture(row, small, kept))
        return row

    def put(self, row: Row) -> None:
        """Write one row whose overlay, if it has one, is in the folder already."""
        with writing_results(self.folder):
            if isinstance(row, ResultRow) and row.overlay:
                self._remember([self.folder / row.overlay])
            self._write(row)

    def finish(self, summary: RunSummary) -> None:
        """Write report.html and close the files."""
        self.finish_with(summary, self._pictures)

    def finish_with(self, summary: RunSummary, pictures: Iterable[ReportPicture]) -> None:
        """Write report.html with these pictures, for rows that were `put`, and close the files."""
        figures: dict[str, float | str] = {"skipped": summary.skipped}
        warning = ""
        if summary.drift is not None:
            figures["drift"] = summary.drift.state
            warning = str(summary.drift.latest or "")
        path = self.folder / "report.html"
        with writing_results(path):
            try:
                write_report_page(path, self._entries(pictures), self._run, figures, warning)
            finally:
                self.close()
        self.report = path

    def close(self) -> None:
        """Close the files; the rows are on the disk, and another run may use the folder."""
        self._close_files()
        self._release()

    def _close_files(self) -> None:
        self._jsonl.close()
        self._csv.close()

    def _open(self) -> None:
        self._jsonl, self._csv = (WholeLines(path) for path in self._paths())
        self._csv.write(_csv_line(_COLUMNS))

    def _paths(self) -> list[Path]:
        return [self.folder / name for name in ("results.jsonl", "results.csv")]

    def _start_next_segment(self) -> None:
        number = next_segment(self.folder)
        self._close_files()
        for path in self._paths():
            path.rename(path.with_suffix(f".{number:04d}{path.suffix}"))
        sync_folder(self.folder)
        self._open()

    def _write(self, row: Row) -> None:
        self._jsonl.write(json_line(row.to_json()))
        self._csv.write(_csv_line(_csv_values(row)))
        if self._run.live and self._jsonl.size > MAX_RESULTS_BYTES:
            self._start_next_segment()

    def _keep_pictures(
        self, row: ResultRow, rgb: NDArray[np.uint8] | None, overlay: Overlay
    ) -> ResultRow:
        row, jpeg = draw_for_row(row, overlay)
        if jpeg is None:
            return row
        href = overlay_name(row)
        files = [self.folder / href]
        files[0].parent.mkdir(exist_ok=True)
        files[0].write_bytes(jpeg)
        row = replace(row, overlay=href)
        if rgb is not None and row.picture is None:  # the frame of a stream exists nowhere else
            picture = f"frames/{Path(href).stem}.png"
            files.append(self.folder / picture)
            files[1].parent.mkdir(exist_ok=True)
            Image.fromarray(rgb).save(files[1])
            row = replace(row, picture=picture)
        self._remember(files)
        return row

    def _remember_earlier(self) -> None:
        runs = all_runs(self.folder)
        overlays = [overlay for run in runs for overlay in run.glob("overlays/*.jpg")]
        for overlay in sorted(overlays, key=lambda path: path.stat().st_mtime):
            frame = overlay.parent.parent / "frames" / f"{overlay.stem}.png"
            self._remember([overlay, frame])

    def _remember(self, files: list[Path]) -> None:
        """Note files that were kept, and delete the oldest where there are more than asked for.

        Their rows stay.
        """
        self._saved.pop(files[0], None)
        self._saved[files[0]] = files
        while self._keep and len(self._saved) > self._keep:
            for path in self._saved.pop(next(iter(self._saved))):
                path.unlink(missing_ok=True)

    def _entries(self, pictures: Iterable[ReportPicture]) -> Iterator[Entry]:
        embedded = 0
        for picture in pictures:
            data = None
            path = self.folder / picture.overlay if picture.overlay else None
            there = path is not None and path.exists()
            if path is not None and there and embedded < EMBEDDED_OVERLAYS:
                data = path.read_bytes()
                embedded += 1
            yield Entry(
                row=picture.row,
                thumbnail=picture.thumbnail,
                overlay=picture.overlay if there else None,
                overlay_bytes=data,
            )


def open_sink(target: str, run: RunInfo) -> ResultFolder:
    """Open the folder that a person named as a sink; it keeps overlays of anomalous pictures."""
    if not target:
        raise UsageError("the sink 'folder' needs a folder", hint="write folder=DIR")
    return ResultFolder(Path(target), run, keep=LIVE_KEEP if run.live else 0)


def wants_overlay(save: SavePolicy, row: Row) -> bool:
    """Whether the overlay of this row is to be kept.

    >>> wants_overlay("anomalous", FailedRow(0, "a.png", "a.png is empty"))
    False
    """
    return save == "all" or (save == "anomalous" and row.verdict == "anomalous")


def overlay_name(row: Row) -> str:
    """Return where the overlay of a row lies in the folder.

    >>> overlay_name(FailedRow(7, "parts/a b.png", ""))
    'overlays/000007-a_b.jpg'
    """
    return f"overlays/{row.id:06d}-{_safe(row.source)}.jpg"


def _csv_line(values: Sequence[object]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerow([csv_cell(value) for value in values])
    return buffer.getvalue()


def _csv_values(row: Row) -> list[object]:
    """Return the cells of a row in the order of the columns."""
    values: dict[str, object] = dict.fromkeys(_COLUMNS)
    values |= {"id": row.id, "source": row.source, "regions": 0}
    values["drift"] = row.drift.state if row.drift else None
    if isinstance(row, FailedRow):
        values["error"] = row.error
        return list(values.values())
    for name in ("verdict", "score", "threshold", "threshold_kind", "ratio", "total_ms"):
        values[name] = getattr(row, name)
    values["regions"] = len(row.regions)
    if row.regions:
        values |= zip(("x0", "y0", "x1", "y1"), row.regions[0].box, strict=True)
    if row.evidence is not None:
        values["reference"] = row.evidence.reference
        values["similarity"] = row.evidence.similarity
    return list(values.values())


def _safe(source: str) -> str:
    """Return a file name that resembles its source."""
    name = Path(source).stem if "#" not in source else source.replace("#", "-")
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[-60:].lstrip(".")
