"""anoco-edge eval: how well defects are found on a labelled data set."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from anoco_edge.cli.console import note, progress, warn
from anoco_edge.cli.fleet import OnOption, WorkersOption, fleet_progress
from anoco_edge.cli.options import (
    DeviceOption,
    EngineOption,
    JsonOption,
    ProductOption,
    ScorerOption,
    ThreadsOption,
)
from anoco_edge.cli.requests import evaluation as ask
from anoco_edge.cli.requests.calibration import check_calibration_package
from anoco_edge.cli.settings import (
    AugmentOption,
    FloorOption,
    LambdaOption,
    MaxPatchesOption,
    MergeDistanceOption,
    MetricOption,
    PoolingOption,
    RotationsOption,
)
from anoco_edge.cli.views.eval_results import fail_on_problems, report_evaluation
from anoco_edge.cli.views.paper import show_paper
from anoco_edge.errors import UsageError

if TYPE_CHECKING:
    from anoco_edge_calibration.evaluation.bundle_evaluation import EvaluationOutcome
    from anoco_edge_calibration.evaluation.fleet_evaluation import FleetEvaluation


def eval_(
    context: typer.Context,
    dataset: ask.DatasetArgument = None,
    layout: ask.LayoutOption = None,
    categories: ask.CategoriesOption = None,
    turn_test: ask.TurnTestOption = None,
    backbone: ask.BackboneOption = None,
    size: ask.SizeOption = None,
    layer: ask.LayerOption = None,
    layers: ask.LayersOption = None,
    tap_norm: ask.TapNormOption = None,
    weights: ask.WeightsOption = None,
    precision: ask.PrecisionOption = "fp32",
    bundle: ask.BundleOption = None,
    product: ProductOption = None,
    shots: ask.ShotsOption = "4",
    seeds: ask.SeedsOption = 1,
    scorers: ask.ScorersOption = "anoco",
    sweep: ask.SweepOption = None,
    metric: MetricOption = None,
    lam: LambdaOption = None,
    floor: FloorOption = None,
    pooling: PoolingOption = None,
    tta: AugmentOption = None,
    rotations: RotationsOption = None,
    flips: ask.FlipsOption = None,
    merge_distance: MergeDistanceOption = None,
    max_patches: MaxPatchesOption = None,
    out_: ask.OutOption = Path("eval-out"),
    cache: ask.CacheOption = None,
    no_cache: ask.NoCacheOption = False,
    batch: ask.BatchOption = 4,
    engine: EngineOption = "auto",
    device: DeviceOption = "CPU",
    scorer: ScorerOption = "auto",
    threads: ThreadsOption = 0,
    on: OnOption = None,
    workers: WorkersOption = 0,
    paper: ask.PaperOption = False,
    paper_only: ask.PaperOnlyOption = False,
    json_: JsonOption = False,
) -> None:
    """Measure accuracy on a data set: image AUROC, AUPR, F1-max, pixel AUROC, PRO, F1-max.

    Each category is taught with so many of its train/good pictures, drawn by each seed, and all of
    test/ is scored. Maps are measured at the size of the picture. With --bundle the settings of
    its product hold (region, mask, tiles, lambda, ...), its references do not. Pictures that cannot
    be measured are named and left out, and the command then ends with exit code 1.
    """
    check_calibration_package()
    from anoco_edge_calibration.evaluation.fleet_evaluation import FleetEvaluation
    from anoco_edge_calibration.evaluation.paper import published_rows

    if paper_only:
        show_paper(dataset, json_=json_)
        return
    if dataset is None:
        raise UsageError("which data set?", hint="name its folder, or pass --paper-only")
    started = time.perf_counter()
    evaluation = ask.open_evaluation(context, dataset)
    plan = evaluation.plan
    fleet = None if on is None else FleetEvaluation(on, workers, evaluation, out_)
    if fleet is None:
        with progress("measuring", plan.steps(len(evaluation.setup.variants))) as step:
            outcome = evaluation.run(step)
    else:
        outcome = _run_on_fleet(fleet)
    if paper:
        published = published_rows(plan.dataset, plan.shots)
        outcome.result.rows += published.rows
        outcome.result.remarks += published.remarks
    report_evaluation(evaluation, outcome, dataset, out_, started, json_=json_)
    if fleet is not None:
        fleet.finish()
    fail_on_problems(outcome.result)


def _run_on_fleet(fleet: FleetEvaluation) -> EvaluationOutcome:
    try:
        return fleet.run(progress=fleet_progress, note=note, warn=warn)
    except KeyboardInterrupt:
        note("stopped before the end; the same command goes on")
        raise typer.Exit(130) from None
