"""The options of `anoco-edge eval`, and what they ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anoco_edge.bundle import Bundle, Product, find_bundle
from anoco_edge.cli.console import note, warn
from anoco_edge.cli.options import parse_layers, parse_size
from anoco_edge.cli.settings import read_settings
from anoco_edge.cli.views import export_progress
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.errors import UsageError, missing
from anoco_edge.machine import cache_folder

if TYPE_CHECKING:
    from anoco_edge_calibration.evaluation.bundle_evaluation import BundleEvaluation
    from anoco_edge_calibration.evaluation.tables import Shots
    from anoco_edge_calibration.evaluation.variants import Variant

DatasetArgument = Annotated[
    Path | None,
    typer.Argument(help="A data set, or one category of it, in a layout that --layout names."),
]
LayoutOption = Annotated[
    str | None,
    typer.Option(help="mvtec, mpdd, btad, visa, real-iad or oct2017; default: found by looking."),
]
CategoriesOption = Annotated[
    str | None, typer.Option(help="Only these categories (commas); default: all.")
]
TurnTestOption = Annotated[
    int | None,
    typer.Option(
        metavar="SEED",
        min=0,
        help="Turn every test picture and its mask by an angle that this seed draws.",
    ),
]
BackboneOption = Annotated[
    str | None, typer.Option(help="Backbone to export, once; it stays in the cache folder.")
]
SizeOption = Annotated[str | None, typer.Option(help="With --backbone: input size.")]
LayerOption = Annotated[int | None, typer.Option(help="With --backbone: block to tap.")]
LayersOption = Annotated[str | None, typer.Option(help="With --backbone: several: 12,18.")]
TapNormOption = Annotated[
    Literal["none", "layernorm", "model"] | None,
    typer.Option(help="With --backbone: norm after the tap."),
]
WeightsOption = Annotated[str | None, typer.Option(help="With --backbone: weights file.")]
PrecisionOption = Annotated[
    Literal["fp32", "fp16"], typer.Option(help="With --backbone: its arithmetic.")
]
BundleOption = Annotated[
    Path | None,
    typer.Option(help="Bundle to measure; default: the only one in this directory."),
]
ShotsOption = Annotated[str, typer.Option(help="Good parts to teach (commas); 'full' takes all.")]
SeedsOption = Annotated[int, typer.Option(min=1, help="Draws of these parts, seeds 0 to N-1.")]
# There is no --no-flips: nothing has flips before, and help has room for the names of scorers.
FlipsOption = Annotated[
    bool | None, typer.Option("--flips", help="Enrol each reference mirrored too.")
]
ScorersOption = Annotated[
    str,
    typer.Option(
        help="What to compare (commas), or all: anoco (by its metric: anoco-l2, "
        "anoco-cosine); nearest patch: knn-l2, knn-cosine, knn-mahalanobis; mean over the "
        "nearest 5 % of the bank, as in the paper's ablation: knn-l2-5pct, knn-cosine-5pct, "
        "knn-mahalanobis-5pct; ANoCo's energy on these 5 %: knn-bipartite, knn-nonbipartite; "
        "message-passing, patchcore, spade, subspace; anoco-subspace (the geometric mean of both), "
        "anoco-foreground (without the patches of an empty background); with prompts, and not part "
        "of all: winclip, winclip-anoco."
    ),
]
SweepOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=A,B",
        help="Try several values of lambda, metric, floor, pooling, rounds, variance or "
        "temperature (repeatable: all combinations).",
    ),
]
OutOption = Annotated[
    Path,
    typer.Option("--out", "-o", help="Folder for results.json, results.md and report.html."),
]
CacheOption = Annotated[
    Path | None,
    typer.Option(help="Folder for features; default: the user's cache. It may be deleted."),
]
NoCacheOption = Annotated[bool, typer.Option("--no-cache", help="Keep no features.")]
BatchOption = Annotated[int, typer.Option(min=1, help="Pictures per run of the backbone.")]
PaperOption = Annotated[
    bool, typer.Option("--paper", help="Put the paper's rows beside the measured ones.")
]
PaperOnlyOption = Annotated[
    bool, typer.Option("--paper-only", help="Show the paper's tables, and measure nothing.")
]


def open_evaluation(context: typer.Context, dataset: Path) -> BundleEvaluation:
    """Read and check the options, then open the data set, the bundle and the engine.

    Whatever is wrong with the options shows before a backbone is exported or an engine opened.
    """
    from anoco_edge_calibration.evaluation import EvaluationPlan
    from anoco_edge_calibration.evaluation.bundle_evaluation import BundleEvaluation, EngineRequest
    from anoco_edge_calibration.evaluation.layouts import open_dataset
    from anoco_edge_calibration.evaluation.prompts import object_name

    options = context.params
    variants, settings = read_variants(options), read_settings(options)
    shots, features = read_shots(options["shots"]), _feature_folder(options)
    names = [name.strip() for name in (options["categories"] or "").split(",") if name]
    data = open_dataset(dataset, names, options["layout"])
    if options["turn_test"] is not None:
        data = data.turn_tests(options["turn_test"])
    plan = EvaluationPlan(data, shots, options["seeds"])
    plan.check()
    prompted = any(variant.prompted for variant in variants)
    objects = [object_name(one.name) for one in data.categories] if prompted else []
    bundle, like = _open_bundle(context, objects)
    warn_if_random(bundle)
    threads = options["threads"] or (0 if options["on"] is None else 1)
    return BundleEvaluation.open(
        bundle,
        plan,
        variants,
        settings=settings,
        like=like,
        engine=EngineRequest(options["engine"], options["device"], threads, features),
        scorer=options["scorer"],
        batch=options["batch"],
        warn=warn,
    )


def _feature_folder(options: Mapping[str, Any]) -> str | None:
    """Return the folder that features are kept in, or None where they are not."""
    cache, no_cache = options["cache"], options["no_cache"]
    if no_cache and cache is not None:
        raise UsageError("--cache and --no-cache exclude each other", hint="pass one of them")
    if no_cache:
        return None
    folder = Path(cache or cache_folder() / "features")
    if options["on"] is not None:
        folder = folder.absolute()  # workers have another current directory
    return str(folder)


def read_shots(text: str) -> list[Shots]:
    """Read numbers of references, and `full` for all of them.

    >>> read_shots("1,4,full,4")
    [1, 4, 'full']
    """
    found: list[Shots] = []
    for part in (part.strip() for part in text.split(",")):
        if part == "full":
            found.append("full")
        elif part.isdecimal() and int(part) > 0:
            found.append(int(part))
        else:
            raise UsageError(f"{text!r} are not shots", hint="write 1,2,4 or full")
    return list(dict.fromkeys(found))


def read_variants(options: Mapping[str, Any]) -> list[Variant]:
    """Read what is compared, and refuse options that would change nothing about it."""
    from anoco_edge_calibration.evaluation.variants import check_taken, parse_variants

    variants = parse_variants(options["scorers"], options["sweep"] or [], sweep_label="--sweep")
    fixed = {"lambda": options["lam"]}
    fixed |= {name: options[name] for name in ("metric", "floor", "pooling")}
    for name in (name for name, value in fixed.items() if value is not None):
        if any(name in variant.choices for variant in variants):
            raise UsageError(f"{name} is given and swept", hint=f"leave out --{name}")
        check_taken(name, [variant.kind for variant in variants], f"--{name}")
    return variants


def _open_bundle(context: typer.Context, objects: Sequence[str]) -> tuple[Bundle, Product | None]:
    """Return the bundle to measure, exported first with --backbone, and the product whose settings
    hold. A bundle that is exported gets prompts about `objects`."""
    options = context.params
    backbone, path, product = options["backbone"], options["bundle"], options["product"]
    if backbone is not None:
        if path is not None or product is not None:
            raise UsageError(
                "--backbone exports a new bundle: --bundle and --product cannot be given with it",
                hint="pass --backbone, or --bundle",
            )
        return _exported(backbone, options, objects), None
    _refuse_given(context, ("size", "layer", "layers", "tap_norm", "weights", "precision"))
    opened = Bundle.open(path or find_bundle())
    has_settings = product is not None or opened.products()
    return opened, opened.product(product) if has_settings else None


def _refuse_given(context: typer.Context, names: Sequence[str]) -> None:
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} is for --backbone", hint="pass that, or leave it out")


def _exported(backbone: str, options: Mapping[str, Any], objects: Sequence[str]) -> Bundle:
    """Return the bundle of a backbone from the cache folder, exported there at the first time."""
    try:
        from anoco_edge_export.export_cache import cached_bundle
    except ImportError:
        raise missing("anoco_edge_export", "export", "to export a backbone") from None
    wanted = {
        "size": parse_size(options["size"]),
        "layers": parse_layers(options["layer"], options["layers"]),
        "tap_norm": options["tap_norm"],
        "weights": options["weights"],
        "precision": options["precision"],
    }
    if objects:
        wanted["prompts"] = list(objects)
    cached = cached_bundle(backbone, wanted, export=export_progress.export_bundle)
    path = cached.bundle.path
    if cached.found:
        note(f"{backbone} was exported before: {path}")
    else:
        note(f"exported {backbone} to {path}, where later runs find it")
    return cached.bundle
