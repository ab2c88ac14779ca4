"""`anoco-edge eval`: how well defects are found on a labelled data set."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anoco_edge.cli import console
from anoco_edge.cli.options import (
    DeviceOption,
    EngineOption,
    JsonOption,
    ProductOption,
    ScorerOption,
    ThreadsOption,
    example,
    parse_layers,
    parse_size,
)
from anoco_edge.cli.randomness import warn_if_random
from anoco_edge.cli.settings import (
    FloorOption,
    LambdaOption,
    MaxPatchesOption,
    MetricOption,
    PoolingOption,
    TtaOption,
    read_settings,
)
from anoco_edge.errors import AnocoError, EnvironmentMissingError, UsageError, missing
from anoco_edge.machine import cache_folder, cores, machine, versions

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle, Product
    from anoco_edge.engines import Engine
    from anoco_edge_calibration.evaluation import Contest, Evaluation
    from anoco_edge_calibration.feature_cache import CachedEngine
    from anoco_edge_calibration.variants import Variant

_PACKAGES = ("numpy", "pillow", "onnxruntime", "onnxruntime-gpu", "openvino")
_EXPORTERS = ("torch", "timm", "onnx", "onnxscript")
_MOST_WARNINGS = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    text = "anoco-edge eval mvtec/ --backbone efficientnet-lite0 --shots 1,4 --seeds 3"
    app.command("eval", epilog=example(text))(eval_)


def eval_(
    context: typer.Context,
    dataset: Annotated[
        Path, typer.Argument(help="A category in the layout of MVTec AD, or a folder of them.")
    ],
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
        str, typer.Option(help="What to compare: anoco, knn-l2, knn-cosine (commas).")
    ] = "anoco",
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B",
            help="Try several values of lambda, metric, floor or pooling (repeatable: all "
            "combinations).",
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
    json_: JsonOption = False,
) -> None:
    """Measure accuracy on a data set: image AUROC, AUPR, F1-max, pixel AUROC, PRO, F1-max.

    Each category is taught with so many of its train/good pictures, drawn by each seed, and all of
    test/ is scored. Maps are measured at the size of the picture. With --bundle the settings of
    its product hold (region, mask, tiles, lambda, ...), its references do not. Pictures that cannot
    be measured are named and left out, and the command then ends with exit code 1.
    """
    try:
        from anoco_edge_calibration.dataset import open_dataset
        from anoco_edge_calibration.eval_report import Gallery, write_eval_report
        from anoco_edge_calibration.evaluation import Contest, evaluate
        from anoco_edge_calibration.variants import parse_variants
    except ImportError:
        what = "anoco_edge_calibration, a part of anoco-edge, is missing"
        raise EnvironmentMissingError(what, hint="reinstall anoco-edge") from None

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
    data = open_dataset(dataset, [name.strip() for name in (categories or "").split(",") if name])
    opened, like = _opened(context, backbone, size, layer, layers, weights, bundle, product)
    warn_if_random(opened)
    folder = None if no_cache else cache or cache_folder() / "features"
    runner, chosen = _engine(opened, engine, device, threads, folder)
    contest = Contest(
        opened, runner, variants, numbers, seeds, settings, like, scorer, threads, batch
    )
    gallery = Gallery(contest, len(data.categories))
    with console.progress("measuring", contest.steps(data)) as step:
        result = evaluate(data, contest, step, gallery.look)
    facts = {
        "dataset": str(dataset),
        "categories": [category.name for category in data.categories],
        **_effective(contest, device, chosen),
        "windows": vars(runner.use),
        "seconds": round(time.perf_counter() - started, 1),
    }
    _tell(result, runner, folder)
    if json_:
        console.emit_json([row.to_dict() for row in result.rows])
    else:
        _show(result, data.name, opened)
    # Shown first: minutes of work are not lost where the folder cannot be written.
    _write(out_, result, facts)
    write_eval_report(out_ / "report.html", data.name, result, facts, gallery.worst)
    console.note(f"results: {out_ / 'results.json'}, {out_ / 'results.md'}, {out_ / 'report.html'}")
    _leave(result)


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
    for name in (name for name, value in fixed.items() if value is not None):
        if any(name in variant.choices for variant in variants):
            raise UsageError(f"{name} is given and swept", hint=f"leave out --{name}")
        if name != "pooling" and all(variant.kind != "anoco" for variant in variants):
            raise UsageError(
                f"--{name} is for anoco, which is not among the scorers",
                hint="add anoco to --scorers",
            )


def _opened(
    context: typer.Context,
    backbone: str | None,
    size: str | None,
    layer: int | None,
    layers: str | None,
    weights: str | None,
    path: Path | None,
    product: str | None,
) -> tuple[Bundle, Product | None]:
    """The bundle to measure, and the product whose settings hold."""
    from anoco_edge.bundle import Bundle, find_bundle

    if backbone is not None:
        if path is not None or product is not None:
            raise UsageError(
                "--backbone exports anew: --bundle and --product do not go with it",
                hint="pass --backbone, or --bundle",
            )
        options = {
            "size": parse_size(size),
            "layers": parse_layers(layer, layers),
            "weights": weights,
            "precision": context.params["precision"],
        }
        return _exported(backbone, options), None
    for name in ("size", "layer", "layers", "weights", "precision"):
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise UsageError(f"--{name} is for --backbone", hint="pass that, or leave it out")
    opened = Bundle.open(path or find_bundle())
    taught = product is not None or opened.products()
    return opened, opened.product(product) if taught else None


def _exported(backbone: str, options: dict[str, Any]) -> Bundle:
    """From the cache folder, where it is exported to unless the very same is there."""
    from anoco_edge.bundle import Bundle
    from anoco_edge.cli.export import export_bundle
    from anoco_edge.errors import BundleError

    name = f"{backbone}-{_recipe_digest(backbone, options)[:16]}.anoco"
    path = cache_folder() / "eval" / name
    try:
        bundle = Bundle.open(path)
        console.note(f"{backbone} was exported before: {path}")
    except BundleError:
        bundle = export_bundle(backbone, path, overwrite=True, **options).bundle
        console.note(f"exported {backbone} to {path}, where later runs find it")
    return bundle


def _recipe_digest(backbone: str, options: dict[str, Any]) -> str:
    """Of all that decides the graph: recipe, options, weights, and the versions of the tools."""
    from anoco_edge.bundle.checksum import sha256_bytes

    try:
        from anoco_edge_export import load_recipe
    except ImportError:
        raise missing("anoco_edge_export", "export", "to export a backbone") from None
    decides = {
        **options,
        "weights": _weights_digests(backbone, options["weights"]),
        "recipe": load_recipe(backbone).model_dump(mode="json"),
        "versions": versions(_EXPORTERS),
    }
    return sha256_bytes(json.dumps(decides, sort_keys=True).encode())


def _weights_digests(backbone: str, source: str | None) -> list[str]:
    """Of the weights file, and of what lies beside it and may choose a variant of the model."""
    from anoco_edge.bundle.checksum import sha256_file
    from anoco_edge_export.hub import kept_file
    from anoco_edge_export.state_file import find_file

    if source is not None and source.startswith("random:"):
        return [source]
    file = kept_file(backbone) if source is None else find_file(Path(source))
    if file is None:
        return []  # the recipe's own, which it names
    if not file.is_file():
        raise UsageError(f"there is no weights file {file}", hint="check the path")
    beside = (file.with_name(name) for name in ("config.json", "open_clip_config.json"))
    return [sha256_file(path) for path in (file, *beside) if path.is_file()]


def _engine(
    bundle: Bundle, name: str, device: str, threads: int, folder: Path | None
) -> tuple[CachedEngine, str]:
    """The engine behind its cache, and what was chosen and why."""
    from anoco_edge.engines import EngineSettings, choose_engine, open_engine
    from anoco_edge.selftest import check_engine
    from anoco_edge_calibration.feature_cache import CachedEngine, cache_key

    chosen, why = choose_engine(name, bundle)
    engine: Engine = open_engine(chosen, bundle, EngineSettings(threads=threads, device=device))
    check_engine(bundle, engine)
    contract = bundle.manifest.input
    shape = (contract.rows * contract.cols, contract.dim)
    cached = CachedEngine(engine, folder, cache_key(bundle, engine), shape, warn=console.warn)
    return cached, f"{chosen} ({why})"


def _effective(contest: Contest, device: str, engine: str) -> dict[str, Any]:
    """Everything the figures depend on."""
    from anoco_edge.bundle import Product
    from anoco_edge.scoring import choose_scorer

    manifest, like = contest.bundle.manifest, contest.like
    backbone, given = manifest.backbone, contest.settings.fields
    names = {"lambda": "lam"} | {n: n for n in ("floor", "metric", "pooling", "tta", "bank_dtype")}
    taught = {
        name: given.get(
            name, getattr(like, own) if like else Product.model_fields[own].get_default()
        )
        for name, own in names.items()
    }
    if like is not None:
        kept = {"region", "mask", "tiles", "coreset", "tta_seed", "any_size"}
        taught |= {"product": like.name, **like.model_dump(mode="json", include=kept)}
    return {
        "shots": list(contest.shots),
        "seeds": contest.seeds,
        "scorers": [variant.name for variant in contest.variants],
        **taught,
        "max_patches": contest.settings.max_patches,
        "bundle": contest.bundle.path.name,
        "bundle_sha256": manifest.checksum,
        "backbone": f"{backbone.id} ({backbone.tap}, {backbone.weights.source})",
        "size": f"{manifest.input.width}x{manifest.input.height} {manifest.input.fit}",
        "precision": backbone.precision,
        "engine": engine,
        "device": device,
        "scorer": "{} ({})".format(*choose_scorer(contest.scorer)),
        "threads": contest.threads or cores(),
        "batch": contest.batch,
        **machine(),
        "versions": versions(_PACKAGES),
    }


def _write(folder: Path, result: Evaluation, settings: dict[str, Any]) -> None:
    from anoco_edge.bench.tables import facts
    from anoco_edge.bundle.disk import write_atomic, writing
    from anoco_edge_calibration.tables import markdown

    document = {
        "settings": settings,
        "rows": [row.to_dict() for row in result.rows],
        "problems": [vars(problem) for problem in result.problems],
        "remarks": result.remarks,
    }
    lines = ["Percent; means over seeds ± their deviation, the best scorer in bold.", ""]
    lines += [markdown(result.rows), "", *(f"- {remark}" for remark in result.remarks)]
    lines += [f"- left out: {problem.what}" for problem in result.problems]
    plain = {k: ", ".join(map(str, v)) if isinstance(v, list) else v for k, v in settings.items()}
    lines += [*(f"- {fact}" for fact in facts(plain)), ""]
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(document, indent=1, allow_nan=False)
        write_atomic(folder / "results.json", text.encode())
        write_atomic(folder / "results.md", "\n".join(lines).encode("utf-8", "backslashreplace"))


def _tell(result: Evaluation, engine: CachedEngine, folder: Path | None) -> None:
    """What is missing from the figures, and what the cache did."""
    from anoco_edge_calibration.feature_cache import size_mb

    for problem in result.problems[:_MOST_WARNINGS]:
        console.warn(problem.what)
    if len(result.problems) > _MOST_WARNINGS:
        console.warn(f"and {len(result.problems) - _MOST_WARNINGS} more: see results.json")
    for remark in result.remarks:
        console.note(remark)
    use = engine.use
    said = f"features: {use.computed} windows computed, {use.loaded} from the cache"
    if use.damaged:
        said += f", {use.damaged} entries of it were damaged"
    if folder is not None:
        said += f"; {folder} holds {size_mb(folder):.0f} MB, delete it when it is too large"
    console.note(said)


def _show(result: Evaluation, name: str, bundle: Bundle) -> None:
    from anoco_edge_calibration.tables import rich_table

    title = f"{name}, {bundle.manifest.backbone.id}: percent, means over seeds"
    console.out.print(rich_table(result.rows, title))


def _leave(result: Evaluation) -> None:
    if result.problems:
        count = len(result.problems)
        which = "" if count == 1 else ", the first"
        raise AnocoError(
            f"{count} thing{'s' * (count > 1)} could not be measured{which}: "
            f"{result.problems[0].what}"
        )
