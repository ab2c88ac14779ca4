"""anoco-edge infer: pictures, videos and cameras in, verdicts out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anoco_edge.cli.console import note, warn
from anoco_edge.cli.fleet import Fleet, OnOption, WorkersOption
from anoco_edge.cli.option_groups import RunOptions
from anoco_edge.cli.options import JsonOption, ProductOption
from anoco_edge.cli.requests.inference import (
    AllowRandomOption,
    BatchOption,
    CameraOption,
    DriftOption,
    FailOnAnomalyOption,
    InputsArgument,
    KeepOption,
    LimitOption,
    OutOption,
    SaveOption,
    SinkOption,
    TeachEveryOption,
    TeachOption,
    ThresholdOption,
    TimeoutOption,
    check_fleet_options,
    check_references,
    split_inputs,
)
from anoco_edge.cli.teaching import teach_from_source
from anoco_edge.cli.views.inference import exit_after, run_with_console
from anoco_edge.cli.views.verdicts import say_kept
from anoco_edge.sinks import LIVE_KEEP, SinkRequest

if TYPE_CHECKING:
    from anoco_edge.results import Sink


def infer(
    inputs: InputsArgument = None,
    *,
    camera: CameraOption = None,
    out_: OutOption = None,
    sink: SinkOption = None,
    product: ProductOption = None,
    threshold: ThresholdOption = None,
    teach: TeachOption = 0,
    teach_every: TeachEveryOption = 1.0,
    limit: LimitOption = None,
    save: SaveOption = "anomalous",
    keep: KeepOption = None,
    batch: BatchOption = 4,
    timeout: TimeoutOption = 10.0,
    drift: DriftOption = True,
    fail_on_anomaly: FailOnAnomalyOption = False,
    allow_random: AllowRandomOption = False,
    stages: RunOptions,
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
    from anoco_edge.bundle import Bundle, open_builtin
    from anoco_edge.bundle.builtin import can_create
    from anoco_edge.detector import DetectorConfig
    from anoco_edge.drift import DriftWatch
    from anoco_edge.results import RunInfo
    from anoco_edge.sinks.folder import ResultFolder
    from anoco_edge.sources import open_source

    path, pictures = split_inputs(inputs or [], camera, teach)
    requests = [SinkRequest.parse(text) for text in sink or []]
    new = teach > 0 and can_create(path)
    bundle = open_builtin() if new else Bundle.open(path)
    if not teach:
        check_references(bundle, product, camera)
    config = DetectorConfig(
        str(path),
        product,
        stages.engine,
        stages.scorer,
        stages.runtime,
        stages.settings(),
        threshold,
        allow_random,
    )
    if on is not None:
        shared = check_fleet_options(camera, teach, out_, sink or [])
        fleet = Fleet(on, workers, drift, json_)
        summary = fleet.infer(config, pictures, limit, shared, save, keep or 0, batch)
        exit_after(summary, live=False, fail_on_anomaly=fail_on_anomaly)
        return
    # The detector is loaded before the camera starts if possible, so that no frames are missed
    # meanwhile.
    early = None if teach else config.detector(bundle)
    with open_source(pictures, camera=camera, limit=limit, timeout=timeout) as source:
        if teach:
            bundle = teach_from_source(bundle, config, source, teach, teach_every, new=new)
        detector = early or config.detector(bundle)
        run = RunInfo.of(detector, f"{detector.bundle.name}: {source.name}", live=source.live)
        folder = None
        if out_ is not None:
            most = keep if keep is not None else (LIVE_KEEP if source.live else 0)
            folder = ResultFolder(out_, run, save=save, keep=most)
            say_kept(folder.earlier)
        guarded = [request.open(run, warn) for request in requests]
        watch = DriftWatch.of(detector.product, detector.threshold) if drift else None
        # The folder comes first, because the rows that it returns name the files that it kept.
        sinks: list[Sink] = [*guarded] if folder is None else [folder, *guarded]
        summary = run_with_console(detector, source, sinks, batch, watch, json_=json_)
        if folder is not None and folder.report is not None:
            note(f"report: {folder.report}")
        exit_after(summary, source.live, fail_on_anomaly, guarded)
