"""Turns a source of frames into rows: inspects and counts every frame, and hands it to sinks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from anoco_edge.detector import Detector
from anoco_edge.drift import DriftWatch
from anoco_edge.errors import AnocoError, EngineError, SourceError, StorageError
from anoco_edge.images.frame import Frame
from anoco_edge.results.overlay import Overlay
from anoco_edge.results.rows import FailedRow, ResultRow, Row
from anoco_edge.results.signals import signals_held
from anoco_edge.results.sink import Sink
from anoco_edge.results.summary import RunSummary
from anoco_edge.sources import Source


def inspect_source(
    detector: Detector,
    source: Source,
    sinks: Sequence[Sink] = (),
    *,
    batch: int = 4,
    watch: DriftWatch | None = None,
) -> RunSummary:
    """Inspect every frame of a source; one that cannot be inspected gets a row that says why.

    Ctrl-C ends the run and nothing more: the sinks are finished, and the summary says that the run
    was interrupted. So does a stream that breaks off, an engine that stops working and a disk that
    is full; `summary.lost` says which. Each row says what `watch` makes of the run so far.
    """
    summary = RunSummary()
    started = time.perf_counter()
    frames = iter(source)
    try:
        while group := list(islice(frames, 1 if source.live else batch)):
            for one in inspect_group(detector, group, summary.pictures):
                row = watched(one.row, watch)
                with signals_held():
                    for sink in sinks:
                        row = sink.write(row, one.frame, one.overlay) or row
                    summary.count(row)
    except KeyboardInterrupt:
        summary.interrupted = True
    except (SourceError, StorageError, EngineError) as error:
        summary.lost = error
    summary.skipped = source.skipped
    summary.drift = watch.summary() if watch else None
    summary.seconds = time.perf_counter() - started
    for sink in reversed(sinks):
        try:
            sink.finish(summary)
        except StorageError as error:
            # If the rows did not fit on the disk, the report does not fit either, and the first
            # error says so.
            summary.lost = summary.lost or error
    return summary


def watched(row: Row, watch: DriftWatch | None) -> Row:
    """Return the row with the reading of the drift watch, which is told of the row."""
    if watch is None:
        return row
    return replace(row, drift=watch.update(row.id, row.verdict, row.score))


@dataclass(frozen=True)
class InspectedFrame:
    """A frame with its row; `overlay` is None where the frame could not be inspected."""

    row: Row
    frame: Frame
    overlay: Overlay | None


def inspect_group(
    detector: Detector, group: Sequence[Frame], first: int
) -> Iterator[InspectedFrame]:
    """Inspect frames that go through the backbone together; their ids count from `first`.

    This is where errors of single pictures end: each becomes a FailedRow. If the engine failed, it
    is tried on a reference picture after the rows; EngineError then says that it works no more.
    """
    engine_failed = False
    outcomes = zip(group, detector.inspect_frames(group), strict=True)
    for number, (frame, outcome) in enumerate(outcomes, first):
        if isinstance(outcome, AnocoError):
            engine_failed |= isinstance(outcome, EngineError)
            yield InspectedFrame(FailedRow.from_error(number, frame.source, outcome), frame, None)
            continue
        row = ResultRow.from_inspection(outcome, number, _file(frame))
        yield InspectedFrame(row, frame, Overlay(detector, outcome, frame.pixels))
    if engine_failed:
        detector.probe_engine()


def _file(frame: Frame) -> str | None:
    """Return the absolute path of a frame that is a file; links stay links."""
    return os.path.abspath(frame.source) if Path(frame.source).is_file() else None  # noqa: PTH100
