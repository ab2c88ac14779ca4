"""`anoco-edge eval`: how well defects are found on a labelled data set."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anoco_edge.cli import console
from anoco_edge.cli.fleet import OnOption, WorkersOption
from anoco_edge.cli.options import (
    DeviceOption,
    EngineOption,
    JsonOption,
    ProductOption,
    ScorerOption,
    ThreadsOption,
    example,
)
from anoco_edge.cli.settings import (
    FloorOption,
    LambdaOption,
    MaxPatchesOption,
    MetricOption,
    PoolingOption,
    TtaOption,
    read_settings,
)
from anoco_edge.cli.views import eval_results
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge.machine import cache_folder
from anoco_edge_calibration.bundle_evaluation import open_bundle, open_cached_engine

if TYPE_CHECKING:
    from anoco_edge_calibration.variants import Variant


def register(app: typer.Typer) -> None:
    """Add the command."""
    text = "anoco-edge eval mvtec/ --backbone efficientnet-lite0 --shots 1,4 --seeds 3"
    app.command("eval", epilog=example(text))(eval_)


def eval_(
    context: typer.Context,
    dataset: Annotated[
        Path | None,
        typer.Argument(help="A data set, or one category of it, in a layout that --layout names."),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            help="mvtec, mpdd, btad, visa, real-iad or oct2017; default: found by looking."
        ),
    ] = None,
    categories: Annotated[
        str | None, typer.Option(help="Only these categories (commas); default: all.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Backbone to export, once; it stays in the cache folder.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="With --backbone: input size.")] = None,
    layer: Annotated[int | None, typer.Option(help="With --backbone: block to tap.")] = None,
    layers: Annotated[str | None, typer.Option(help="With --backbone: several: 12,18.")] = None,
    weights: Annotated[str | None, typer.Option(help="With --backbone: weights file.")] = None,
    precision: Annotated[
        Literal["fp32", "fp16"], typer.Option(help="With --backbone: its arithmetic.")
    ] = "fp32",
    bundle: Annotated[
        Path | None,
        typer.Option(help="Bundle to measure; default: the only one in this directory."),
    ] = None,
    product: ProductOption = None,
    shots: Annotated[
        str, typer.Option(help="Good parts to teach (commas); 'full' takes all.")
    ] = "4",
    seeds: Annotated[int, typer.Option(min=1, help="Draws of these parts, seeds 0 to N-1.")] = 1,
    scorers: Annotated[
        str,
        typer.Option(
            help="What to compare (commas), or all: anoco (by its metric: anoco-l2, "
            "anoco-cosine); nearest patch: knn-l2, knn-cosine, knn-mahalanobis; mean over the "
            "nearest 5 % of the bank, as in the paper's ablation: knn-l2-5pct, knn-cosine-5pct, "
            "knn-mahalanobis-5pct; ANoCo's energy on these 5 %: knn-bipartite, knn-nonbipartite; "
            "message-passing, patchcore, spade."
        ),
    ] = "anoco",
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B",
            help="Try several values of lambda, metric, floor, pooling or rounds (repeatable: "
            "all combinations).",
        ),
    ] = None,
    metric: MetricOption = None,
    lam: LambdaOption = None,
    floor: FloorOption = None,
    pooling: PoolingOption = None,
    tta: TtaOption = None,
    max_patches: MaxPatchesOption = None,
    out_: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder for results.json, results.md and report.html."),
    ] = Path("eval-out"),
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder for features; default: the user's cache. It may be deleted."),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no features.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Pictures per run of the backbone.")] = 4,
    engine: EngineOption = "auto",
    device: DeviceOption = "CPU",
    scorer: ScorerOption = "auto",
    threads: ThreadsOption = 0,
    on: OnOption = None,
    workers: WorkersOption = 0,
    paper: Annotated[
        bool, typer.Option("--paper", help="Put the paper's rows beside the measured ones.")
    ] = False,
    paper_only: Annotated[
        bool, typer.Option("--paper-only", help="Show the paper's tables, and measure nothing.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Measure accuracy on a data set: image AUROC, AUPR, F1-max, pixel AUROC, PRO, F1-max.

    Each category is taught with so many of its train/good pictures, drawn by each seed, and all of
    test/ is scored. Maps are measured at the size of the picture. With --bundle the settings of
    its product hold (region, mask, tiles, lambda, ...), its references do not. Pictures that cannot
    be measured are named and left out, and the command then ends with exit code 1.
    """
    try:
        from anoco_edge_calibration.eval_report import write_eval_report
        from anoco_edge_calibration.evaluation import Plan, evaluate
        from anoco_edge_calibration.fleet_evaluation import EngineChoice, Spread
        from anoco_edge_calibration.gallery import Gallery
        from anoco_edge_calibration.layouts import open_dataset
        from anoco_edge_calibration.measuring import Contest
        from anoco_edge_calibration.paper import beside
        from anoco_edge_calibration.variants import parse_variants
    except ImportError:
        what = "anoco_edge_calibration, a part of anoco-edge, is missing"
        raise EnvironmentMissingError(what, hint="reinstall anoco-edge") from None

    if paper_only:
        _show_paper(dataset, json_)
        return
    if dataset is None:
        raise UsageError("which data set?", hint="name its folder, or pass --paper-only")
    started = time.perf_counter()
    variants = parse_variants(scorers, sweep or [])
    _check_fixed({"lambda": lam, "metric": metric, "floor": floor, "pooling": pooling}, variants)
    settings = read_settings(
        roi=None,
        mask=None,
        max_patches=max_patches,
        lam=lam,
        metric=metric,
        floor=floor,
        pooling=pooling,
        tta=tta,
    )
    numbers = _parse_shots(shots)
    if no_cache and cache is not None:
        raise UsageError("--cache and --no-cache exclude each other", hint="pass one of them")
    wanted = [name.strip() for name in (categories or "").split(",") if name]
    data = open_dataset(dataset, wanted, layout)
    plan = Plan(data, numbers, seeds)
    plan.check()
    opened, like = open_bundle(context, backbone, size, layer, layers, weights, bundle, product)
    warn_if_random(opened)
    folder = None if no_cache else cache or cache_folder() / "features"
    threads = threads or (0 if on is None else 1)
    runner, chosen = open_cached_engine(opened, engine, device, threads, folder)
    contest = Contest(opened, runner, variants, settings, like, scorer, threads, batch)
    if on is None:
        gallery = Gallery(variants, numbers, len(data.categories))
        with console.progress("measuring", plan.steps(len(variants))) as step:
            result, worst = evaluate(plan, contest, step, gallery.look), gallery.worst
    else:
        kept = None if folder is None else str(folder.absolute())
        choice = EngineChoice(engine, device, threads, kept)
        spread = Spread(on, workers, plan, contest, choice, out_)
        result, worst = spread.run(runner.use)
    if paper:
        published = beside(data, numbers)
        result.rows += published.rows
        result.remarks += published.remarks
    facts = {
        "dataset": str(dataset),
        "layout": data.layout,
        "categories": [category.name for category in data.categories],
        **eval_results.effective(plan, contest, device, chosen),
        "windows": vars(runner.use),
        "seconds": round(time.perf_counter() - started, 1),
    }
    eval_results.tell(result, runner, folder)
    if json_:
        console.emit_json([row.to_dict() for row in result.rows])
    else:
        eval_results.show(result, data.name, opened)
    # Shown first: minutes of work are not lost where the folder cannot be written.
    eval_results.write(out_, result, facts)
    write_eval_report(out_ / "report.html", data.name, result, facts, worst)
    if on is not None:
        spread.finish()
    console.note(f"results: {out_ / 'results.json'}, {out_ / 'results.md'}, {out_ / 'report.html'}")
    eval_results.leave(result)


def _show_paper(dataset: Path | None, as_json: bool) -> None:
    """All published tables."""
    from anoco_edge_calibration.paper import load_paper
    from anoco_edge_calibration.paper.show import published_table

    if dataset is not None:
        raise UsageError("--paper-only measures nothing", hint="leave out the data set")
    paper = load_paper()
    if as_json:
        console.emit_json([row for table in paper.tables for row in table.flat()])
        return
    console.out.print(f"{paper.paper}\nPercent, as published; ANoCo with {paper.backbone}.\n")
    for table in paper.tables:
        for name in table.datasets or (None,):
            console.out.print(published_table(table, name))


def _parse_shots(text: str) -> list[Any]:
    """`1,4,full`.

    >>> _parse_shots("1,4,full,4")
    [1, 4, 'full']
    """
    found: list[Any] = []
    for part in (part.strip() for part in text.split(",")):
        if part != "full" and not (part.isdecimal() and int(part) > 0):
            raise UsageError(f"{text!r} are not shots", hint="write 1,2,4 or full")
        found.append(part if part == "full" else int(part))
    return list(dict.fromkeys(found))


def _check_fixed(fixed: dict[str, Any], variants: list[Variant]) -> None:
    """An option that would change nothing is a mistake."""
    from anoco_edge_calibration.variants import check_taken

    for name in (name for name, value in fixed.items() if value is not None):
        if any(name in variant.choices for variant in variants):
            raise UsageError(f"{name} is given and swept", hint=f"leave out --{name}")
        check_taken(name, [variant.kind for variant in variants], f"--{name}")
