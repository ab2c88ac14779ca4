"""From a source of frames to rows: inspect every frame, count it, and hand it to the sinks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anoco_edge.detector import Detector
from anoco_edge.drift import DriftWatch
from anoco_edge.errors import AnocoError, EngineError, PictureError, SourceError, StorageError
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.results.overlay import Overlay
from anoco_edge.results.rows import FailedRow, ResultRow, Row
from anoco_edge.results.signals import signals_held
from anoco_edge.results.sink import Sink
from anoco_edge.results.summary import RunSummary
from anoco_edge.sources import Frame, Source


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
            # Where the rows did not fit, the report does not fit either: the first error says it.
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
    outcomes = iter(_inspect(detector, [frame.rgb for frame in group if frame.rgb is not None]))
    engine_failed = False
    for number, frame in enumerate(group, first):
        if frame.rgb is None:
            error = frame.error or PictureError(f"{frame.source} could not be read")
            yield InspectedFrame(FailedRow.from_error(number, frame.source, error), frame, None)
            continue
        outcome = next(outcomes)
        if isinstance(outcome, AnocoError):
            engine_failed |= isinstance(outcome, EngineError)
            yield InspectedFrame(FailedRow.from_error(number, frame.source, outcome), frame, None)
            continue
        inspection = _of_frame(outcome, frame)
        row = ResultRow.from_inspection(inspection, number, _file(frame))
        yield InspectedFrame(row, frame, Overlay(detector, inspection, frame.rgb))
    if engine_failed:
        detector.probe_engine()


def _of_frame(inspection: Inspection, frame: Frame) -> Inspection:
    """Return the inspection with what the frame knows: its name, and how long decoding took."""
    timings = {**inspection.timings, "decode": frame.decode_ms}
    timings["total"] += frame.decode_ms - inspection.timings["decode"]
    return replace(inspection, source=frame.source, timings=timings)


def _file(frame: Frame) -> str | None:
    """Return the absolute path of a frame that is a file; links stay links."""
    return os.path.abspath(frame.source) if Path(frame.source).is_file() else None  # noqa: PTH100


def _inspect(
    detector: Detector, pictures: Sequence[NDArray[np.uint8]]
) -> Iterable[Inspection | AnocoError]:
    try:
        return list(detector.inspect_many(pictures, max(1, len(pictures))))
    except AnocoError:
        # One picture that cannot be scored (a black frame may have no signal) fails its whole
        # batch, so the pictures are inspected again one by one.
        return [_inspect_alone(detector, picture) for picture in pictures]


def _inspect_alone(detector: Detector, picture: NDArray[np.uint8]) -> Inspection | AnocoError:
    try:
        return detector.inspect(picture)
    except AnocoError as error:
        return error
