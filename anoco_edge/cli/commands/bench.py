"""anoco-edge bench: how fast a frame is, and where the time goes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from anoco_edge.cli.bench_runs import (
    measure_frames,
    measure_line,
    measure_rival,
    measure_scoring,
)
from anoco_edge.cli.option_groups import RunOptions
from anoco_edge.cli.options import (
    JsonOption,
    OptionalBundleArgument,
    PicturesOption,
    ProductOption,
)
from anoco_edge.cli.requests.bench import (
    RIVAL,
    BaselinesOption,
    FeaturesOption,
    FloodOption,
    LineOption,
    RivalPythonOption,
    ScorersOption,
    ScoringOption,
    WrongPicturesOption,
    check_bench,
    read_scoring,
)
from anoco_edge.cli.views.bench import (
    Format,
    show_frame_bench,
    show_line_bench,
    show_rival_bench,
    show_scoring_bench,
)
from anoco_edge.errors import BudgetMissedError


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
    rival_python: RivalPythonOption = None,
    features: FeaturesOption = None,
    line: LineOption = False,
    flood: FloodOption = False,
    wrong_pictures: WrongPicturesOption = None,
    repeat: Annotated[int, typer.Option(min=1, help="With --scoring: rounds.")] = 7,
    form: Annotated[
        Format, typer.Option("--format", case_sensitive=False, help="How to write the figures.")
    ] = Format.table,
    json_: JsonOption = False,
) -> None:
    """Measure a frame stage by stage, or with --scoring the scorers beside their rivals.

    With --rivals anomalib, frames run beside its PatchCore: the same backbone, pictures and
    references, with a bank of its size and with the whole one, in FP32 and BF16. With --line, a
    station runs with its buses and its store.
    """
    from anoco_edge.bundle import find_bundle
    from anoco_edge.detector import Detector

    form = Format.json if json_ else form
    check_bench(context.params)
    settings = stages.settings()
    if line:
        measured = measure_line(bundle, product, pictures or [], frames, warmup, flood=flood)
        show_line_bench(measured, form)
        check_p99("from the trigger to the output", measured.worst_p99, max_p99)
        return
    if scoring is not None:
        request = read_scoring(context.params, settings)
        show_scoring_bench(measure_scoring(request, repeat, stages.threads), form)
        return
    if rivals == RIVAL:
        opened, inputs = bundle or find_bundle(), pictures or []
        python = rival_python or sys.executable
        show_rival_bench(measure_rival(opened, product, inputs, python, frames, stages), form)
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
    result = measure_frames(detector, pictures or [], frames, warmup, profile, settings)
    show_frame_bench(result, form)
    check_p99("of a frame", result.stages["total"].p99, max_p99)


def check_p99(what: str, p99: float, allowed: float | None) -> None:
    """Exit with 6 if a p99 exceeds what is allowed."""
    if allowed is not None and p99 > allowed:
        raise BudgetMissedError(
            f"p99 {what} is {p99:.1f} ms, over the {allowed:g} ms allowed",
            hint="a smaller input, a smaller bank or another engine makes it faster",
        )
