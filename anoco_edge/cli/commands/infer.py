"""anoco-edge infer: pictures, videos and cameras in, verdicts out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from anoco_edge.cli.console import note, out, plural, progress, warn
from anoco_edge.cli.fleet import Fleet, OnOption, WorkersOption
from anoco_edge.cli.options import (
    ArenaOption,
    DeviceOption,
    EngineOption,
    JsonOption,
    ProductOption,
    RuntimeOption,
    ScorerOption,
    ThreadsOption,
)
from anoco_edge.cli.views.verdicts import (
    DetectorRemarks,
    FrameLines,
    JsonDocument,
    ProgressBar,
    VerdictTable,
    remark_threshold,
    say_kept,
)
from anoco_edge.errors import BundleError, PictureError, UsageError
from anoco_edge.sinks import LIVE_KEEP, OWN_SINKS, SinkRequest

if TYPE_CHECKING:
    from anoco_edge.detector import Detector
    from anoco_edge.drift import DriftWatch
    from anoco_edge.engines import EngineSettings
    from anoco_edge.results import RunSummary, Sink
    from anoco_edge.sinks.folder import ResultFolder
    from anoco_edge.sinks.guarded import GuardedSink
    from anoco_edge.sources import Source

EXIT_ANOMALOUS, EXIT_NO_VERDICT = 10, 11


def infer(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BUNDLE] [PICTURES...]",
            help="A bundle (default: the one in this directory), then pictures, folders, globs, "
            "videos, or the address of a stream.",
        ),
    ] = None,
    camera: Annotated[
        str | None,
        typer.Option(help="Camera number, device, address, or GStreamer pipeline."),
    ] = None,
    out_: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for results, overlays and report.html. An earlier run in it moves to "
            "runs/0001 there.",
        ),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=TARGET]",
            help=f"Another place for the rows: {', '.join(one.usage for one in OWN_SINKS)}, or a "
            "sink that another package adds. May be given more than once.",
        ),
    ] = None,
    product: ProductOption = None,
    threshold: Annotated[
        float | None, typer.Option(help="Use this threshold instead of the product's.")
    ] = None,
    teach: Annotated[
        int, typer.Option(min=0, help="Take the first so many frames as good references.")
    ] = 0,
    teach_every: Annotated[
        float, typer.Option(min=0, max=3600, help="Seconds between them, on a live source.")
    ] = 1.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many pictures.")] = None,
    save: Annotated[
        Literal["anomalous", "all", "none"], typer.Option(help="Which overlays to write.")
    ] = "anomalous",
    keep: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Most overlays kept, of all runs in --out together; the oldest go first, rows "
            f"stay. 0 keeps all. Default: {LIVE_KEEP} for live sources.",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Pictures per run of the backbone.")] = 4,
    timeout: Annotated[
        float,
        typer.Option(max=86_400, help="Seconds without a frame after which a stream is lost."),
    ] = 10.0,
    drift: Annotated[
        bool,
        typer.Option(help="Warn when the scores of good parts move away from calibration's."),
    ] = True,
    fail_on_anomaly: Annotated[
        bool, typer.Option(help="Exit 10 when a part is anomalous, 11 when one has no verdict.")
    ] = False,
    allow_random: Annotated[
        bool, typer.Option(help="Accept a bundle with random weights.", hidden=True)
    ] = False,
    engine: EngineOption = "auto",
    device: DeviceOption = "CPU",
    scorer: ScorerOption = "auto",
    runtime: RuntimeOption = "python",
    threads: ThreadsOption = 0,
    arena: ArenaOption = True,
    on: OnOption = None,
    workers: WorkersOption = 0,
    json_: JsonOption = False,
) -> None:
    """Inspect pictures, videos or a camera.

    Live sources give their newest frame; what was skipped is counted. Ctrl-C ends the run with a
    summary. With --json a finite source gives one JSON object, a live one a line per frame.

    Where the product was calibrated with held-out parts, a drift watch compares the scores of good
    parts with theirs and warns when light or camera have moved, wrongly in at most 1 % of
    undisturbed runs of 10,000 parts. It starts again with every run.
    """
    from anoco_edge.detector import DetectorConfig
    from anoco_edge.drift import DriftWatch
    from anoco_edge.engines import EngineSettings
    from anoco_edge.results import RunInfo
    from anoco_edge.sinks.folder import ResultFolder
    from anoco_edge.sources import open_source

    bundle, pictures = _split(inputs or [], camera)
    requests = [SinkRequest.parse(text) for text in sink or []]
    if not teach:
        _needs_references(bundle, product, camera)
    settings = EngineSettings(threads=threads, arena=arena, device=device)
    config = DetectorConfig(
        str(bundle), product, engine, scorer, runtime, settings, threshold, allow_random
    )
    if on is not None:
        if camera is not None or teach or out_ is None:
            raise UsageError(
                "--on takes folders of pictures and needs --out",
                hint="a camera is watched, and taught from, where it is",
            )
        if requests:
            raise UsageError(
                "--sink does not work with --on: workers do not send pictures back",
                hint="leave one of them out",
            )
        fleet = Fleet(on, workers, drift, json_)
        summary = fleet.infer(config, pictures, limit, out_, save, keep or 0, batch)
        _leave(summary, False, fail_on_anomaly)
        return
    # The detector is loaded before the camera starts where that is possible, so that no frames
    # pass by meanwhile.
    early = None if teach else config.detector()
    with open_source(pictures, camera=camera, limit=limit, timeout=timeout) as source:
        if teach:
            _teach(bundle, product, source, teach, teach_every, engine, scorer, settings)
        detector = early or config.detector()
        run = RunInfo.of(detector, f"{detector.bundle.name}: {source.name}", live=source.live)
        folder = None
        if out_ is not None:
            most = keep if keep is not None else (LIVE_KEEP if source.live else 0)
            folder = ResultFolder(out_, run, save=save, keep=most)
            say_kept(folder.earlier)
        guarded = [request.open(run, warn) for request in requests]
        watch = DriftWatch.of(detector.product, detector.threshold) if drift else None
        summary = _run(detector, source, folder, guarded, batch, watch, json_)
        if folder is not None and folder.report is not None:
            note(f"report: {folder.report}")
        _leave(summary, source.live, fail_on_anomaly, guarded)


def _split(inputs: list[str], camera: str | None) -> tuple[Path, list[str]]:
    """The first word is the bundle when it looks like one."""
    from anoco_edge.bundle import find_bundle
    from anoco_edge.bundle.store import SUFFIX

    first = Path(inputs[0]) if inputs else None
    if first and (first.name.endswith(SUFFIX) or (first / "manifest.json").is_file()):
        bundle, pictures = first, inputs[1:]
    else:
        bundle, pictures = find_bundle(), inputs
    if not pictures and camera is None:
        raise UsageError("there is nothing to inspect", hint="give pictures, or --camera 0")
    return bundle, pictures


def _needs_references(bundle: Path, product: str | None, camera: str | None) -> None:
    from anoco_edge.bundle import Bundle

    opened = Bundle.open(bundle)
    if product is None and not opened.products():
        source = f"--camera {camera}" if camera is not None else "PICTURES"
        raise BundleError(
            f"{bundle} has no references yet",
            hint=f"put a good part in view and run: anoco-edge infer {bundle} {source} --teach 4",
        )


def _teach(
    bundle: Path,
    product: str | None,
    source: Source,
    count: int,
    every: float,
    engine: str,
    scorer: str,
    settings: EngineSettings,
) -> None:
    from anoco_edge.errors import SourceError
    from anoco_edge.teaching import NewPicture, Teacher

    pictures: list[NewPicture] = []
    with progress("teaching", count * 2 + 1) as step:
        teacher = Teacher.open(bundle, engine, scorer, settings=settings, progress=step)
        for frame in islice(source, count):
            if frame.rgb is None:
                raise frame.error or SourceError(f"{frame.source} could not be read")
            name = frame.source if "#" in frame.source else Path(frame.source).name
            pictures.append(NewPicture.from_array(name, frame.rgb))
            step(name)
            if source.live and len(pictures) < count:
                time.sleep(every)
        if len(pictures) < count:
            raise SourceError(f"{source.name} gave only {len(pictures)} of {count} frames to teach")
        change = teacher.enroll(pictures, product)
    for name in change.duplicates:
        warn(f"refused a frame that is there already: {name}")
    for text in change.notes:
        warn(text)
    note(f"taught {plural(len(change.added), 'reference')}: {', '.join(change.added)}")


def _run(
    detector: Detector,
    source: Source,
    folder: ResultFolder | None,
    guarded: Sequence[GuardedSink],
    batch: int,
    watch: DriftWatch | None,
    json_: bool,
) -> RunSummary:
    from anoco_edge.results import inspect_source
    from anoco_edge.sinks.drift_announcer import DriftAnnouncer
    from anoco_edge.sinks.service_manager import ServiceManager

    remark_threshold(detector)
    # The folder comes first, because the rows that it returns name the files that it kept.
    sinks: list[Sink] = [] if folder is None else [folder]
    sinks += guarded
    if watch is not None:
        sinks.append(DriftAnnouncer(watch, note, warn))
    sinks += [DetectorRemarks(detector), _console(detector.threshold_kind, source.live, json_)]
    if source.live:
        manager = ServiceManager.from_environment()
        manager.ready(f"watching {source.name} for {detector.product.name}")
        sinks.append(manager)
    with ProgressBar("inspecting", source.total) as bar:
        return inspect_source(detector, source, [*sinks, bar], batch=batch, watch=watch)


def _console(kind: str, live: bool, json_: bool) -> Sink:
    if live and json_:
        from anoco_edge.sinks.json_lines import JsonLinesStream

        return JsonLinesStream(out.file)
    if live:
        return FrameLines(kind)
    return JsonDocument() if json_ else VerdictTable(kind)


def _leave(
    summary: RunSummary,
    live: bool,
    fail_on_anomaly: bool,
    guarded: Sequence[GuardedSink] = (),
) -> None:
    """End with the exit code that the run deserves."""
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
