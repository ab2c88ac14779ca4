"""anoco-edge export: a backbone becomes a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from anoco_edge.cli.console import emit_json, err, note, out, progress, warn
from anoco_edge.cli.enroll import show_taught, taught_report
from anoco_edge.cli.options import JsonOption, check_product_name, example, parse_size
from anoco_edge.errors import AnocoError, UsageError, missing

if TYPE_CHECKING:
    from anoco_edge.teaching import NewPicture, Taught


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "export",
        epilog=example("anoco-edge export --backbone efficientnet-lite0 --refs good/ --shots 4"),
    )(export)


def export(
    backbone: Annotated[str, typer.Option(help="Backbone; --list shows all.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="Show the backbones.")] = False,
    out_: Annotated[
        Path | None, typer.Option("--out", "-o", help="Bundle to write; default: BACKBONE.anoco.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Input size: 384, or 640x896.")] = None,
    weights: Annotated[
        str | None, typer.Option(help="Weights file, or random:SEED; default: the recipe's own.")
    ] = None,
    fit: Annotated[
        Literal["stretch", "letterbox"],
        typer.Option(help="How a picture is brought to the input size."),
    ] = "stretch",
    refs: Annotated[
        list[str] | None, typer.Option(help="Pictures of good parts to enrol at once.")
    ] = None,
    shots: Annotated[
        int | None, typer.Option(min=1, help="Take only so many of them, drawn by --seed.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of that draw.")] = 0,
    product: Annotated[str | None, typer.Option(help="Name of the product for --refs.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing bundle.")] = False,
    json_: JsonOption = False,
) -> None:
    """Trace a backbone to ONNX, check it against torch, and write a bundle.

    With --refs the pictures are enrolled at once. Nothing is written when the exported graph
    does not compute what torch computes (exit 5).
    """
    if list_:
        _show_list(json_)
        return
    if not backbone:
        raise UsageError("no backbone was named", hint="pass --backbone; --list shows all")
    from anoco_edge.bundle.store import SUFFIX

    target = out_ or Path(f"{backbone}{SUFFIX}")
    if not target.name:
        raise UsageError(f"--out {target} is no name for a bundle", hint="give NAME.anoco")
    check_product_name(product)
    if target.suffix != SUFFIX:
        target = target.with_name(target.name + SUFFIX)
    pictures = _pictures(refs, shots, seed)  # bad references should cost seconds, not an export
    bundle = export_bundle(
        backbone,
        target,
        size=parse_size(size),
        weights=weights,
        fit=fit,
        pictures=pictures,
        overwrite=overwrite,
    )
    taught = None
    if pictures:
        taught = _enroll(target, pictures, product)
    if json_:
        emit_json(_report(bundle, taught))
    else:
        _show(bundle, taught)


def export_bundle(
    backbone: str,
    target: Path,
    *,
    size: tuple[int, int] | None = None,
    weights: str | None = None,
    fit: Literal["stretch", "letterbox"] = "stretch",
    pictures: list[NewPicture] | tuple[()] = (),
    overwrite: bool = False,
) -> Any:
    """Export and write; progress on stderr."""
    try:
        from anoco_edge_export import export_backbone, load_recipe
    except ImportError:
        raise missing("anoco_edge_export", "export", "to export a backbone") from None
    from anoco_edge.bundle import InputContract, create_bundle
    from anoco_edge.preprocess import prepare
    from anoco_edge.scoring.onnx_scorer import scoring_model

    if target.exists() and not overwrite:  # before minutes of work
        raise UsageError(f"{target} exists already", hint="choose another --out, or --overwrite")
    recipe = load_recipe(backbone)
    width, height = size or tuple(recipe.size)
    checked = []
    if width % recipe.stride == 0 and height % recipe.stride == 0:
        rows, cols = height // recipe.stride, width // recipe.stride
        contract = InputContract(
            width=width, height=height, fit=fit, stride=recipe.stride, rows=rows, cols=cols, dim=1
        )
        checked = [prepare(p.rgb, contract)[0] for p in pictures[:3]]
    with err.status(f"exporting {backbone}") as status:
        exported = export_backbone(
            backbone,
            size=(width, height),
            weights=weights,
            fit=fit,
            pictures=checked,
            progress=lambda text: status.update(f"exporting {backbone}: {text}"),
        )
        status.update("writing the bundle")
        return create_bundle(
            target,
            backbone=exported.backbone,
            contract=exported.input,
            parity=exported.parity,
            tools=exported.tools,
            files={**exported.files, "scoring.onnx": scoring_model()},
            overwrite=overwrite,
        )


def _pictures(refs: list[str] | None, shots: int | None, seed: int) -> list[NewPicture]:
    if not refs:
        if shots is not None:
            raise UsageError("--shots needs --refs", hint="say which pictures to draw from")
        return []
    import numpy as np

    from anoco_edge.sources.files import find_files
    from anoco_edge.teaching import NewPicture

    paths, _ = find_files(refs)
    if shots is not None:
        if shots > len(paths):
            raise UsageError(f"--shots {shots} of {len(paths)} pictures", hint="give more pictures")
        drawn = np.random.default_rng(seed).permutation(len(paths))[:shots]
        paths = [paths[k] for k in sorted(drawn)]
    return [NewPicture.from_file(path) for path in paths]


def _enroll(target: Path, pictures: list[NewPicture], product: str | None) -> Taught:
    from anoco_edge.teaching import Teacher

    try:
        with progress("enrolling", len(pictures) + 1) as step:
            taught = Teacher.open(target, progress=step).enroll(pictures, product)
    except AnocoError:
        note(f"{target} was written, but without references; add them with: anoco-edge enroll")
        raise
    for name in taught.duplicates:
        warn(f"refused a picture that is there already: {name}")
    return taught


def _report(bundle: Any, taught: Taught | None) -> dict[str, Any]:
    report: dict[str, Any] = {
        "bundle": str(bundle.path),
        "backbone": bundle.manifest.backbone.model_dump(),
        "input": bundle.manifest.input.model_dump(),
        "parity": bundle.manifest.parity,
    }
    if taught:
        report["taught"] = taught_report(taught)
    return report


def _show(bundle: Any, taught: Taught | None) -> None:
    contract, measured = bundle.manifest.input, bundle.manifest.parity["measured"]
    out.print(
        f"[bold]{escape(str(bundle.path))}[/bold]: {bundle.manifest.backbone.id}, "
        f"{contract.width}x{contract.height}, {contract.rows} x {contract.cols} patches; "
        f"equal to torch (worst cosine {measured['min_cosine']:.7f})",
        soft_wrap=True,
    )
    if bundle.manifest.backbone.weights.random:
        warn("the weights are random: this bundle is for tests, its verdicts mean nothing")
    if taught is None:
        note(f"next: anoco-edge enroll {bundle.path} PICTURES_OF_GOOD_PARTS")
        return
    show_taught(taught, bundle.path)
    note(f"next: anoco-edge infer {bundle.path} PICTURES --out out")


def _show_list(json_: bool) -> None:
    try:
        from anoco_edge_export import list_recipes, load_recipe
    except ImportError:
        raise missing("anoco_edge_export", "export", "to list the backbones") from None
    recipes = [load_recipe(name) for name in list_recipes()]
    if json_:
        emit_json([recipe.model_dump(mode="json") for recipe in recipes])
        return
    from rich.table import Column, Table

    table = Table(Column("backbone", no_wrap=True), "what", "size", "stride", "tap", "licence")
    for recipe in recipes:
        table.add_row(
            recipe.id,
            recipe.title,
            "x".join(str(v) for v in recipe.size),
            str(recipe.stride),
            f"layer {recipe.layer}",
            recipe.weights.license,
        )
    out.print(table)
