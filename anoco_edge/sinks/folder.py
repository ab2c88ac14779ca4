"""Writing results as they come, so that a run that ends early loses nothing."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.detector import Detector
from anoco_edge.errors import StorageError, UsageError
from anoco_edge.pipeline.base import ProductSnapshot
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.reporting.overlay import Match, draw_overlay
from anoco_edge.results.atomic_lines import WholeLines
from anoco_edge.results.earlier_runs import (
    all_runs,
    keep_earlier_run,
    lock_folder,
    next_segment,
    refuse_fleet,
)
from anoco_edge.results.report_page import Entry, thumbnail, write_report
from anoco_edge.storage.atomic_files import sync_folder
from anoco_edge.storage.regular_file import open_regular
from anoco_edge.text.plain_text import csv_cell, plain_json

SavePolicy = Literal["anomalous", "all", "none"]
Row = dict[str, Any]

MAX_RESULTS_BYTES = 100_000_000  # then results.jsonl and .csv become results.0001.jsonl and .csv
EMBEDDED_OVERLAYS = 200  # inside report.html; further ones are linked
LIVE_REPORT_ROWS = 2000
OVERLAY_QUALITY = 88

_COLUMNS = (
    *("id", "source", "verdict", "score", "threshold", "threshold_kind", "ratio"),
    *("regions", "x0", "y0", "x1", "y1", "reference", "similarity", "total_ms", "drift", "error"),
)


@dataclass(frozen=True)
class Shown:
    """What the report needs of one picture; the overlay itself stays on the disk."""

    row: Row
    thumbnail: bytes
    overlay: str | None


class ResultFolder:
    """One run's folder. An earlier run in it moves to runs/0001; `earlier` says where it is now.

    `keep` counts overlays of all runs in the folder. With `continues` what lies there is of this
    run, and its rows are written anew.
    """

    def __init__(
        self,
        folder: Path,
        *,
        save: SavePolicy = "anomalous",
        keep: int = 0,
        live: bool = False,
        continues: bool = False,
    ) -> None:
        self.folder = folder
        self.save: SavePolicy = save
        self._keep = keep
        self._live = live
        self._saved: dict[Path, list[Path]] = {}  # by overlay, oldest first
        self._shown: deque[Shown] = deque(maxlen=LIVE_REPORT_ROWS if live else None)
        with writing_results(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.earlier: Path | None = None
            self._release: Callable[[], object] = lambda: None
            if not continues:
                self._release = lock_folder(folder, self)
                refuse_fleet(folder)
                self.earlier = keep_earlier_run(folder)
            self._open()
            if keep:  # what earlier runs left counts too: a service restarts many times
                self._remember_earlier()

    def add(self, row: Row, rgb: NDArray[np.uint8] | None, overlay: Image.Image | None) -> Row:
        """Write one row, and what the policy says to keep of the picture; returns the row."""
        with writing_results(self.folder):
            href = None
            if overlay is not None and wants_overlay(self.save, row):
                row, href = self._keep_pictures(row, rgb, overlay)
            self._write(row)
        small = thumbnail(rgb) if rgb is not None else b""
        self._shown.append(Shown(row, small, href))
        return row

    def put(self, row: Row) -> None:
        """Write one row whose overlay, if it has one, is in the folder already."""
        with writing_results(self.folder):
            if row.get("overlay"):
                self._remember([self.folder / row["overlay"]])
            self._write(row)

    def finish(
        self,
        snapshot: Detector | ProductSnapshot,
        summary: Mapping[str, object],
        title: str,
        *,
        warning: str = "",
        shown: Iterable[Shown] | None = None,
    ) -> Path:
        """Write report.html, with a warning above all else, and close the files. `shown` is for
        rows that were `put`, which are not remembered here."""
        path = self.folder / "report.html"
        with writing_results(path):
            write_report(
                path,
                self._entries(self._shown if shown is None else shown),
                title=title,
                product=snapshot.product.name,
                threshold=snapshot.threshold,
                threshold_kind=snapshot.threshold_kind,
                summary=summary,
                warning=warning,
            )
            self.close()
        return path

    def close(self) -> None:
        """Close the files; what was added is on the disk."""
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
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
        self._jsonl.write(plain_json(text) + "\n")
        flat = _flat(row)
        self._csv.write(_csv_line([flat[name] for name in _COLUMNS]))
        if self._live and self._jsonl.size > MAX_RESULTS_BYTES:
            self._start_next_segment()

    def _keep_pictures(
        self, row: Row, rgb: NDArray[np.uint8] | None, overlay: Image.Image
    ) -> tuple[Row, str]:
        href = overlay_name(row)
        stem = Path(href).stem
        files = [self.folder / href]
        files[0].parent.mkdir(exist_ok=True)
        files[0].write_bytes(overlay_jpeg(overlay))
        row = {**row, "overlay": href}
        if rgb is not None and "picture" not in row:  # a frame that exists nowhere else
            frame = self.folder / "frames" / f"{stem}.png"
            frame.parent.mkdir(exist_ok=True)
            Image.fromarray(rgb).save(frame)
            files.append(frame)
            row["picture"] = f"frames/{stem}.png"
        self._remember(files)
        return row, href

    def _remember_earlier(self) -> None:
        runs = all_runs(self.folder)
        overlays = [overlay for run in runs for overlay in run.glob("overlays/*.jpg")]
        for overlay in sorted(overlays, key=lambda path: path.stat().st_mtime):
            frame = overlay.parent.parent / "frames" / f"{overlay.stem}.png"
            self._remember([overlay, frame])

    def _remember(self, files: list[Path]) -> None:
        """Note what was kept; what is more than asked for goes, the oldest first. Rows stay."""
        self._saved.pop(files[0], None)
        self._saved[files[0]] = files
        while self._keep and len(self._saved) > self._keep:
            for path in self._saved.pop(next(iter(self._saved))):
                path.unlink(missing_ok=True)

    def _entries(self, shown: Iterable[Shown]) -> Iterator[Entry]:
        embedded = 0
        for one in shown:
            data = None
            if one.overlay and embedded < EMBEDDED_OVERLAYS:
                path = self.folder / one.overlay
                data = path.read_bytes() if path.exists() else None
                embedded += data is not None
            there = one.overlay and (self.folder / one.overlay).exists()
            yield Entry(
                row=one.row,
                thumbnail=one.thumbnail or None,
                overlay=one.overlay if there else None,
                overlay_bytes=data,
            )


def wants_overlay(save: SavePolicy, row: Mapping[str, Any]) -> bool:
    """Whether the picture of this row is to be kept.

    >>> wants_overlay("anomalous", {"verdict": "good"}), wants_overlay("all", {"verdict": "good"})
    (False, True)
    """
    return save == "all" or (save == "anomalous" and row.get("verdict") == "anomalous")


def overlay_name(row: Row) -> str:
    """Where the overlay of a row lies in the folder.

    >>> overlay_name({"id": 7, "source": "parts/a b.png"})
    'overlays/000007-a_b.jpg'
    """
    return f"overlays/{row['id']:06d}-{_safe(str(row['source']))}.jpg"


def overlay_jpeg(overlay: Image.Image) -> bytes:
    """As it is kept."""
    held = io.BytesIO()
    overlay.save(held, "JPEG", quality=OVERLAY_QUALITY)
    return held.getvalue()


def overlay_of(detector: Detector, result: Inspection, rgb: NDArray[np.uint8]) -> Image.Image:
    """Heat map, regions and the best-matching reference of one inspected picture."""
    row, col = result.peak
    match = None
    if result.scored[row, col]:
        found = result.evidence(row, col)
        match = Match(
            reference=detector.reference_picture(found),
            name=found.reference,
            box=found.box,
            similarity=found.similarity,
            query_box=found.query_box,
        )
    return draw_overlay(
        rgb,
        result.map,
        score=result.score,
        threshold=result.threshold,
        verdict=result.verdict,
        kind=result.threshold_kind,
        regions=[region.box for region in result.regions],
        outline=result.outline_at_picture,
        match=match,
    )


def read_results(path: Path) -> Iterator[Row]:
    """The rows of a results.jsonl."""
    with _opened_results(path) as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not _is_row(row):
                raise UsageError(
                    f"line {number} of {path} is not a result", hint="give a run's results.jsonl"
                )
            yield row


def _is_row(row: Any) -> bool:
    """Whether the values that are read again later are of the kinds that `infer` writes."""
    if not isinstance(row, dict) or type(row.get("id")) is not int:
        return False
    texts = (row.get(name) for name in ("source", "picture", "product", "verdict", "error"))
    numbers = (row.get(name) for name in ("score", "threshold", "ratio"))
    return all(text is None or isinstance(text, str) for text in texts) and all(
        number is None or type(number) in (int, float) for number in numbers
    )


@contextmanager
def _opened_results(path: Path) -> Iterator[io.TextIOWrapper]:
    try:
        file = open_regular(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="give a run's results.jsonl"
        ) from None
    with io.TextIOWrapper(file, "utf-8", errors="surrogateescape") as stream:
        yield stream


@contextmanager
def writing_results(what: Path) -> Iterator[None]:
    """An operating-system error as one line; unlike in a bundle, what came before stays."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise StorageError(
            f"cannot write {what}: {reason}",
            hint="free some space; the rows written before are kept"
            if full
            else "choose another `folder`",
        ) from None


def _csv_line(values: Sequence[object]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerow([csv_cell(value) for value in values])
    return buffer.getvalue()


def _flat(row: Row) -> Row:
    regions = row.get("regions") or []
    evidence = row.get("evidence") or {}
    flat = {name: row.get(name) for name in _COLUMNS}
    flat["regions"] = len(regions)
    flat["reference"] = evidence.get("reference")
    flat["similarity"] = evidence.get("similarity")
    flat["drift"] = (row.get("drift") or {}).get("state")
    flat["total_ms"] = (row.get("timings") or {}).get("total")
    if regions:
        flat.update(zip(("x0", "y0", "x1", "y1"), regions[0]["box"], strict=True))
    return flat


def _safe(source: str) -> str:
    """A file name that remembers its source."""
    name = Path(source).stem if "#" not in source else source.replace("#", "-")
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[-60:].lstrip(".")
