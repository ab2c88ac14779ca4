"""From a source of frames to rows: inspect, record, count."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.detector import Detector
from anoco_edge.drift import DriftWatch
from anoco_edge.errors import AnocoError, EngineError, SourceError, StorageError
from anoco_edge.images.frame import Frame
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.results.signals import signals_held
from anoco_edge.sinks.folder import ResultFolder, Row, SavePolicy, overlay_of, wants_overlay
from anoco_edge.sources import Source
from anoco_edge.text.plain_text import utf8_text


@dataclass
class Summary:
    """Counts of a run; `lost` says why it ended before its time (stream or engine dead, disk
    full)."""

    pictures: int = 0
    good: int = 0
    anomalous: int = 0
    uncalibrated: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    drift: dict[str, Any] | None = None
    lost: AnocoError | None = field(default=None, repr=False)
    first_error: str = field(default="", repr=False)

    def count(self, row: Row) -> None:
        """One more row."""
        self.pictures += 1
        key = row["verdict"] or "failed"
        self.first_error = self.first_error or row.get("error", "")
        setattr(self, key, getattr(self, key) + 1)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = {k: v for k, v in vars(self).items() if k not in ("lost", "first_error")}
        counts["seconds"] = round(self.seconds, 3)
        return {**counts, "lost": str(self.lost) if self.lost else None}


def inspect_source(
    detector: Detector,
    source: Source,
    folder: ResultFolder | None = None,
    *,
    batch: int = 4,
    watch: DriftWatch | None = None,
    on_row: Callable[[Row], None] = lambda _: None,
) -> Summary:
    """Inspect every frame; a bad one is recorded and the run goes on.

    Ctrl-C ends the run, not the record: the summary says that it was interrupted. Each row says
    what `watch` makes of the run so far.
    """
    summary = Summary()
    started = time.perf_counter()
    frames = iter(source)
    try:
        while group := list(islice(frames, 1 if source.live else batch)):
            save = folder.save if folder else "none"
            for row, rgb, picture in inspect_group(detector, group, summary.pictures, save):
                row["drift"] = watch.update(row) if watch else None
                with signals_held():
                    if folder is not None:
                        row = folder.add(row, rgb, picture)
                    summary.count(row)
                    on_row(row)
    except KeyboardInterrupt:
        summary.interrupted = True
    except (SourceError, StorageError, EngineError) as error:
        summary.lost = error
    summary.skipped = source.skipped
    summary.drift = watch.to_dict() if watch else None
    summary.seconds = time.perf_counter() - started
    return summary


def inspect_group(
    detector: Detector, group: list[Frame], first: int, save: SavePolicy
) -> Iterator[tuple[Row, NDArray[np.uint8] | None, Image.Image | None]]:
    """Row, pixels and wanted overlay of frames that go through the backbone together; their ids
    count from `first`. After the rows of an engine that works no more comes its EngineError."""
    failed = False
    for number, (frame, outcome) in enumerate(_outcome_of_each(detector, group), first):
        failed |= isinstance(outcome, EngineError)
        row = _row(number, frame, outcome)
        picture = None
        if isinstance(outcome, Inspection) and wants_overlay(save, row):
            assert frame.rgb is not None
            try:
                picture = overlay_of(detector, outcome, frame.rgb)
            except AnocoError as error:  # the verdict stands; its picture cannot be drawn
                row["overlay_error"] = str(error)
        yield row, frame.rgb, picture
    if failed:
        detector.probe_engine()


def _outcome_of_each(
    detector: Detector, group: list[Frame]
) -> Iterator[tuple[Frame, Inspection | AnocoError]]:
    readable = [frame for frame in group if frame.rgb is not None]
    outcomes = iter(_outcomes(detector, [f.rgb for f in readable if f.rgb is not None]))
    for frame in group:
        if frame.error is not None:
            yield frame, frame.error
            continue
        outcome = next(outcomes)
        if isinstance(outcome, Inspection):
            timings = {**outcome.timings, "decode": frame.decode_ms}
            timings["total"] += frame.decode_ms - outcome.timings["decode"]
            outcome = replace(outcome, source=frame.source, timings=timings)
        yield frame, outcome


def _outcomes(
    detector: Detector, pictures: Sequence[NDArray[np.uint8]]
) -> list[Inspection | AnocoError]:
    try:
        return list(detector.inspect_many(pictures, max(1, len(pictures))))
    except AnocoError:
        # One that cannot be scored (a black frame may have no signal) spoils its batch: one by one.
        return [_alone(detector, picture) for picture in pictures]


def _alone(detector: Detector, picture: NDArray[np.uint8]) -> Inspection | AnocoError:
    try:
        return detector.inspect(picture)
    except AnocoError as error:
        return error


def _row(number: int, frame: Frame, outcome: Inspection | AnocoError) -> Row:
    source = utf8_text(frame.source)
    if isinstance(outcome, Inspection):
        row = {"id": number, **outcome.to_row(), "source": source}
        if Path(frame.source).is_file():
            row["picture"] = os.path.abspath(frame.source)  # noqa: PTH100 (links stay links)
        return row
    message = utf8_text(str(outcome))
    error = message if source in message else f"{source}: {message}"
    return failed_row(number, source, error)


def failed_row(number: int, source: str, error: str) -> Row:
    """The row of a picture that could not be inspected."""
    missing = dict.fromkeys(("score", "threshold", "ratio", "verdict", "evidence"))
    return {"id": number, "source": source, **missing, "regions": [], "timings": {}, "error": error}
