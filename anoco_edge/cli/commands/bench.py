"""anoco-edge bench: how fast a frame is, and where the time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anoco_edge.cli.console import progress, warn
from anoco_edge.cli.option_groups import RunOptions
from anoco_edge.cli.options import (
    JsonOption,
    OptionalBundleArgument,
    PicturesOption,
    ProductOption,
)
from anoco_edge.cli.requests.bench import (
    BaselinesOption,
    FeaturesOption,
    ScorersOption,
    ScoringOption,
    ScoringRequest,
    check_bench,
    read_scoring,
)
from anoco_edge.cli.views.bench import Format, show_frame_bench, show_scoring_bench
from anoco_edge.errors import BudgetMissedError

if TYPE_CHECKING:
    from anoco_edge.detector import Detector
    from anoco_edge.diagnostics.bench.frames import FrameBench
    from anoco_edge.diagnostics.bench.scoring import ScoringBench
    from anoco_edge.engines import EngineSettings


def bench(
    context: typer.Context,
    bundle: OptionalBundleArgument = None,
    pictures: PicturesOption = None,
    product: ProductOption = None,
    *,
    stages: RunOptions,
    frames: Annotated[int, typer.Option(min=1, help="Frames to measure.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="Frames before that.")] = 5,
    profile: Annotated[
        bool, typer.Option("--profile", help="Split scoring into retrieval and graph.")
    ] = False,
    max_p99: Annotated[
        float | None,
        typer.Option("--max-p99", metavar="MS", help="Exit with 6 if a frame's p99 exceeds this."),
    ] = None,
    scoring: ScoringOption = None,
    scorers: ScorersOption = None,
    rivals: BaselinesOption = None,
    features: FeaturesOption = None,
    repeat: Annotated[int, typer.Option(min=1, help="With --scoring: rounds.")] = 7,
    form: Annotated[
        Format, typer.Option("--format", case_sensitive=False, help="How to write the figures.")
    ] = Format.table,
    json_: JsonOption = False,
) -> None:
    """Measure a frame stage by stage, or with --scoring the scorers beside their rivals."""
    from anoco_edge.bundle import find_bundle
    from anoco_edge.detector import Detector

    form = Format.json if json_ else form
    check_bench(context.params)
    settings = stages.settings()
    if scoring is not None:
        request = read_scoring(context.params, settings)
        show_scoring_bench(_measure_scoring(request, repeat, stages.threads), form)
        return
    # Random weights compute nothing useful, but take the same time.
    detector = Detector.open(
        bundle or find_bundle(),
        product,
        stages.engine,
        stages.scorer,
        runtime=stages.runtime,
        settings=settings,
        allow_random=True,
    )
    result = _measure_frames(detector, pictures or [], frames, warmup, profile, settings)
    show_frame_bench(result, form)
    p99 = result.stages["total"].p99
    if max_p99 is not None and p99 > max_p99:
        raise BudgetMissedError(
            f"p99 of a frame is {p99:.1f} ms, over the {max_p99:g} ms allowed",
            hint="a smaller input, a smaller bank or another engine makes it faster",
        )


def _measure_frames(
    detector: Detector,
    inputs: list[str],
    frames: int,
    warmup: int,
    profile: bool,
    settings: EngineSettings,
) -> FrameBench:
    from anoco_edge.diagnostics.bench.frames import bench_frames, bench_pictures
    from anoco_edge.diagnostics.bench.profiling import split_scoring

    paths, what = bench_pictures(detector.bundle, detector.product, inputs)
    with progress("measuring", frames + warmup) as step:
        result = bench_frames(
            detector,
            paths,
            frames=frames,
            warmup=warmup,
            settings=settings,
            pictures_are=what,
            step=step,
        )
    for text in detector.remarks:
        warn(text)
    if profile:
        with progress("profiling the scorer") as step:
            parts, how = split_scoring(detector, paths, frames=frames, settings=settings, step=step)
        result = result.with_scoring_split(parts, how)
    return result


def _measure_scoring(request: ScoringRequest, repeat: int, threads: int) -> ScoringBench:
    from anoco_edge.diagnostics.bench.scoring import bench_scoring

    with progress("measuring") as step:
        result = bench_scoring(
            request.sizes,
            scorers=request.scorers,
            rivals=request.baselines,
            features=request.features,
            repeat=repeat,
            threads=threads,
            step=step,
        )
    for remark in result.remarks:
        warn(remark)
    return result
