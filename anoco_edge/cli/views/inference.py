"""A run of `infer` on the console: its sinks, its progress and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from anoco_edge.cli.console import note, out, warn
from anoco_edge.cli.views.verdicts import (
    DetectorRemarks,
    FrameLines,
    JsonDocument,
    ProgressBar,
    VerdictTable,
    remark_threshold,
)
from anoco_edge.errors import PictureError

if TYPE_CHECKING:
    from anoco_edge.detector import Detector
    from anoco_edge.drift import DriftWatch
    from anoco_edge.results import RunSummary, Sink
    from anoco_edge.sinks.guarded import GuardedSink
    from anoco_edge.sources import Source

EXIT_ANOMALOUS, EXIT_NO_VERDICT = 10, 11


def run_with_console(
    detector: Detector,
    source: Source,
    sinks: Sequence[Sink],
    batch: int,
    watch: DriftWatch | None,
    *,
    json_: bool,
) -> RunSummary:
    """Inspect a source into these sinks and the console, and tell the service manager."""
    from anoco_edge.results import inspect_source
    from anoco_edge.sinks.drift_announcer import DriftAnnouncer
    from anoco_edge.sinks.service_manager import ServiceManager

    remark_threshold(detector)
    all_sinks = list(sinks)
    if watch is not None:
        all_sinks.append(DriftAnnouncer(watch, note, warn))
    all_sinks += [
        DetectorRemarks(detector),
        _console_sink(detector.threshold_kind, source.live, json_),
    ]
    if source.live:
        manager = ServiceManager.from_environment()
        manager.ready(f"watching {source.name} for {detector.product.name}")
        all_sinks.append(manager)
    with ProgressBar("inspecting", source.total) as bar:
        return inspect_source(detector, source, [*all_sinks, bar], batch=batch, watch=watch)


def _console_sink(kind: str, live: bool, json_: bool) -> Sink:
    if live and json_:
        from anoco_edge.sinks.json_lines import JsonLinesStream

        return JsonLinesStream(out.file)
    if live:
        return FrameLines(kind)
    return JsonDocument() if json_ else VerdictTable(kind)


def exit_after(
    summary: RunSummary,
    live: bool,
    fail_on_anomaly: bool,
    guarded: Sequence[GuardedSink] = (),
) -> None:
    """End with the exit code that the outcome of a run has."""
    if fail_on_anomaly and summary.anomalous:
        if summary.lost:
            warn(str(summary.lost))
        raise typer.Exit(EXIT_ANOMALOUS)
    if summary.lost:
        raise summary.lost
    if summary.interrupted and not live:
        note("stopped before the end")
        raise typer.Exit(130)
    if summary.failed:
        which = "" if summary.failed == 1 else ", the first"
        raise PictureError(
            f"{summary.failed} of {summary.pictures} pictures could not be inspected{which}: "
            f"{summary.first_error}"
        )
    for sink in guarded:
        if sink.error is not None:
            raise sink.error
    if fail_on_anomaly and summary.uncalibrated:
        raise typer.Exit(EXIT_NO_VERDICT)
