"""anoco-edge export: a backbone becomes a bundle, a bundle one file for other runtimes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anoco_edge.cli.commands.backbones import show_backbones
from anoco_edge.cli.commands.build import build_report, show_plan
from anoco_edge.cli.commands.package import check_hand_over, hand_over, show_handed_over
from anoco_edge.cli.console import emit_json, err, note, out, plain, progress, warn
from anoco_edge.cli.options import (
    JsonOption,
    check_product_name,
    example,
    parse_layers,
    parse_size,
)
from anoco_edge.cli.settings import OverlapOption, TileSizeOption, TilesOption, read_tiles
from anoco_edge.cli.views.parity import few_pictures, parity_remarks, parity_table
from anoco_edge.cli.views.product_change import change_report, show_change
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.errors import AnocoError, UsageError, missing
from anoco_edge.pipeline.patch_mask import check_shape
from anoco_edge.teaching import NO_CHANGE, NewPicture, ProductChange, Settings, Teacher

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle
    from anoco_edge_export import ExportedBundle

DEFAULT_BACKBONE = "dinov3-l"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "export",
        epilog=example("anoco-edge export --backbone efficientnet-lite0 --refs good/ --shots 4"),
    )(export)


def export(
    context: typer.Context,
    backbone: Annotated[
        str | None, typer.Option(help=f"Backbone; default: {DEFAULT_BACKBONE}. --list shows all.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the backbones.")] = False,
    out_: Annotated[
        Path | None, typer.Option("--out", "-o", help="Bundle to write; default: BACKBONE.anoco.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Input size: 384, or 640x896.")] = None,
    layer: Annotated[
        int | None, typer.Option(help="Block whose end is tapped, counted from 1.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Several of them, concatenated: 12,18.")
    ] = None,
    tap_norm: Annotated[
        Literal["none", "layernorm", "model"] | None,
        typer.Option(help="Norm after the tap: the model's final one, a plain one, or none."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Weights file, or random:SEED; default: the recipe's own.")
    ] = None,
    precision: Annotated[
        Literal["fp32", "fp16", "int8"], typer.Option(help="Arithmetic of the backbone.")
    ] = "fp32",
    calib: Annotated[
        list[str] | None,
        typer.Option(help="For int8, pictures of good parts to take ranges from: 32 or more."),
    ] = None,
    islands: Annotated[
        str | None,
        typer.Option(help="For fp16, what stays FP32: softmax,layernorm,...; default: as proven."),
    ] = None,
    engine: Annotated[
        Literal["onnxruntime", "openvino", "tensorrt", "tensorrt-rtx"],
        typer.Option(help="Build for this engine at once; the first two need nothing built."),
    ] = "onnxruntime",
    target: Annotated[
        str | None, typer.Option(help="GPUs to build tensorrt-rtx plans for: sm86,sm89.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Most pictures at once, for plans.")] = 1,
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
    tiles: TilesOption = None,
    tile_size: TileSizeOption = None,
    overlap: OverlapOption = None,
    bundle: Annotated[
        Path | None, typer.Option(help="For the next two: from this bundle, nothing exported anew.")
    ] = None,
    single_file: Annotated[
        Path | None, typer.Option(help="Write the whole detector of the product as one ONNX file.")
    ] = None,
    triton: Annotated[
        Path | None, typer.Option(help="Write a Triton model repository around that file.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing bundle.")] = False,
    json_: JsonOption = False,
) -> None:
    """Trace a backbone to ONNX, check it against torch, and write a bundle.

    With --refs the pictures are enrolled at once. Nothing is written when the exported graph
    does not compute what torch computes (exit 5).
    """
    if list_:
        show_backbones(json_)
        return
    check_product_name(product)
    if bundle is not None:
        _only_hand_over(context)
        handed = _hand_over_from(bundle, product, single_file, triton, overwrite)
        emit_json({"bundle": str(bundle), **handed}) if json_ else show_handed_over(handed)
        return
    if (single_file or triton) and not refs:
        raise UsageError(
            "a single file holds references, and none were given",
            hint="pass --refs PICTURES, or --bundle with a product that has some",
        )
    if product is not None and not refs:
        raise UsageError("--product names what --refs teaches", hint="pass --refs, or leave it out")
    settings = Settings({}, tiles=read_tiles(tiles, tile_size, overlap))
    if settings != NO_CHANGE and not refs:
        raise UsageError("tiles are for the product of --refs", hint="pass --refs, or tile later")
    check_hand_over(single_file, triton, overwrite)
    if islands is not None and precision != "fp16":
        raise UsageError("--islands is for --precision fp16", hint="pass that, or leave it out")
    if calib and precision != "int8":
        raise UsageError("--calib is for --precision int8", hint="pass that, or leave it out")
    targets = _targets(engine, target)
    chosen = backbone or DEFAULT_BACKBONE
    path = _bundle_path(out_, chosen)
    tapped = parse_layers(layer, layers)
    pictures = _pictures(refs, shots, seed)  # bad references should cost seconds, not an export
    for picture in pictures:
        first = pictures[0]
        check_shape((picture.width, picture.height), picture.name, (first.width, first.height))
    calibration = _pictures(calib, None, seed)
    after = _AfterExport(engine, batch, pictures, product, settings)
    exported = export_bundle(
        chosen,
        path,
        size=parse_size(size),
        layers=tapped,
        tap_norm=tap_norm,
        weights=weights,
        precision=precision,
        islands=islands.split(",") if islands is not None else None,
        fit=fit,
        pictures=[picture.rgb for picture in pictures[:3]],
        calibration=calibration,
        targets=targets,
        batch=batch,
        overwrite=overwrite,
        prepare=after.run,
    )
    report = _report(exported)
    if not json_:
        _show(exported)
    if after.plan is not None:
        report["plan"] = {**after.plan, "bundle": str(path)}
        if not json_:
            show_plan(report["plan"])
    if after.change is not None:
        report["taught"] = change_report(after.change)
        if not json_:
            show_change(after.change, path)
    handed = {}
    if single_file or triton:
        handed = hand_over(exported.bundle, product, single_file, triton)
    if json_:
        emit_json({**report, **handed})
        return
    show_handed_over(handed)
    next_step = "infer {} PICTURES --out out" if pictures else "enroll {} PICTURES_OF_GOOD_PARTS"
    note(f"next: anoco-edge {next_step.format(path)}")


@dataclass
class _AfterExport:
    """What is done to the new bundle before it takes its place: a plan, references."""

    engine: str
    batch: int
    pictures: list[NewPicture]
    product: str | None
    settings: Settings
    plan: dict[str, Any] | None = None
    change: ProductChange | None = None

    def run(self, bundle: Bundle) -> None:
        """A plan first, so that enrolling runs it. What fails leaves nothing written."""
        if self.engine == "tensorrt":
            self.plan = build_report(bundle.path, "tensorrt", None, self.batch, None, force=False)
        if self.pictures:
            self.change = _enroll(bundle.path, self.pictures, self.product, self.settings)


def export_bundle(
    backbone: str,
    target: Path,
    *,
    prepare: Callable[[Bundle], None] = lambda _: None,
    **options: Any,
) -> ExportedBundle:
    """Export and write; progress on stderr."""
    try:
        from anoco_edge_export import export_bundle
    except ImportError:
        raise missing("anoco_edge_export", "export", "to export a backbone") from None
    with err.status(f"exporting {backbone}") as status:

        def show(text: str) -> None:
            status.update(plain(f"exporting {backbone}: {text}"))

        def building(phase: str, step: int, total: int) -> None:
            show(f"building a plan: {phase.lower()}, {step} of {total}")

        def prepared(bundle: Bundle) -> None:
            status.stop()  # what comes now shows its own progress
            prepare(bundle)

        return export_bundle(
            backbone, target, progress=show, building=building, prepare=prepared, **options
        )


def _targets(engine: str, target: str | None) -> Sequence[str]:
    from anoco_edge.plans.tensorrt_builder import parse_targets

    if engine == "tensorrt-rtx":
        if target is None:
            raise UsageError(
                "--engine tensorrt-rtx builds for a GPU that is named",
                hint="pass --target sm86, or several: sm86,sm89",
            )
        return parse_targets(target)
    if target is not None:
        raise UsageError("--target is for --engine tensorrt-rtx", hint="pass that, or leave it out")
    if engine == "tensorrt":  # its absence should cost a second, not an export
        from anoco_edge.plans.device import current_device
        from anoco_edge.plans.tensorrt_modules import load_module

        load_module("tensorrt")
        current_device()
    return ()


def _bundle_path(out_: Path | None, backbone: str) -> Path:
    from anoco_edge.bundle.store import SUFFIX

    target = out_ or Path(f"{backbone}{SUFFIX}")
    if not target.name:
        raise UsageError(f"--out {target} is no name for a bundle", hint="give NAME.anoco")
    return target if target.suffix == SUFFIX else target.with_name(target.name + SUFFIX)


def _only_hand_over(context: typer.Context) -> None:
    """A bundle is taken as it is: what would change it is refused, not left out."""
    with_bundle = {"bundle", "product", "single_file", "triton", "overwrite", "json_"}
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source and source.name != "DEFAULT"}
    for name in sorted(given - with_bundle):
        option = "--" + name.rstrip("_").replace("_", "-")
        raise UsageError("--bundle takes a bundle as it is", hint=f"leave out {option}")


def _hand_over_from(
    bundle: Path,
    product: str | None,
    single_file: Path | None,
    triton: Path | None,
    overwrite: bool,
) -> dict[str, Any]:
    from anoco_edge.bundle import Bundle

    if single_file is None and triton is None:
        raise UsageError(
            "--bundle alone exports nothing", hint="say --single-file out.onnx or --triton DIR"
        )
    check_hand_over(single_file, triton, overwrite)
    return hand_over(Bundle.open(bundle), product, single_file, triton)


def _pictures(refs: list[str] | None, shots: int | None, seed: int) -> list[NewPicture]:
    if not refs:
        if shots is not None:
            raise UsageError("--shots needs --refs", hint="say which pictures to draw from")
        return []
    import numpy as np

    from anoco_edge.sources.files import find_pictures

    paths = find_pictures(refs, "teach from it with: anoco-edge infer --teach K")
    if shots is not None:
        if shots > len(paths):
            raise UsageError(f"--shots {shots} of {len(paths)} pictures", hint="give more pictures")
        drawn = np.random.default_rng(seed).permutation(len(paths))[:shots]
        paths = [paths[k] for k in sorted(drawn)]
    return [NewPicture.from_file(path) for path in paths]


def _enroll(
    target: Path, pictures: list[NewPicture], product: str | None, settings: Settings
) -> ProductChange:
    try:
        with progress("enrolling", len(pictures) + 1) as step:
            change = Teacher.open(target, progress=step).enroll(pictures, product, settings)
    except AnocoError:
        note(f"{target.name} was not written: correct the references and export again")
        raise
    for name in change.duplicates:
        warn(f"refused a picture that is there already: {name}")
    return change


def _report(exported: ExportedBundle) -> dict[str, Any]:
    manifest = exported.bundle.manifest
    return {
        "bundle": str(exported.bundle.path),
        "backbone": manifest.backbone.model_dump(),
        "input": manifest.input.model_dump(),
        "layers": list(exported.exported.layers),
        "parity": manifest.parity,
        "terms": exported.exported.terms,
        "plans": [
            {
                **plan.model_dump(),
                "size": exported.bundle.file(plan.path).size,
                "seconds": built.seconds,
                "peak_memory_mb": built.peak_memory_mb,
            }
            for plan, built in zip(manifest.plans, exported.plans, strict=True)
        ],
    }


def _show(exported: ExportedBundle) -> None:
    bundle = exported.bundle
    contract, backbone = bundle.manifest.input, bundle.manifest.backbone
    kept, of = exported.exported.layers
    megabytes = sum(file.size for file in bundle.graph_files()) / 1e6
    out.print(parity_table(bundle.manifest.parity))
    for remark in parity_remarks(bundle.manifest.parity):
        note(remark)
    few = few_pictures(bundle.manifest.parity)
    if few:
        warn(few)
    out.print(
        f"[bold]{plain(bundle.path)}[/bold]: {plain(backbone.id)} cut after {plain(backbone.tap)} "
        f"({kept} of {of} layers), "
        f"{contract.width}x{contract.height}, {contract.rows} x {contract.cols} patches, "
        f"{backbone.precision}, {megabytes:.1f} MB; torch agrees within the limits",
        soft_wrap=True,
    )
    for plan, built in zip(bundle.manifest.plans, exported.plans, strict=True):
        out.print(
            f"plan for {plan.target}: {len(built.content) / 1e6:.1f} MB, {built.seconds:.1f} s, "
            f"{built.peak_memory_mb:.0f} MB of memory, {plan.engine} {plan.version}; not run here",
            soft_wrap=True,
            markup=False,
        )
    if exported.exported.variant:
        note(exported.exported.variant)
    warn_if_random(bundle)
    half = bundle.manifest.parity.get("half")
    islands = half.get("islands") if isinstance(half, dict) else None
    for island, found in islands.items() if isinstance(islands, dict) else ():
        if not found:
            note(f"island {island}: this backbone has none")
    if exported.exported.terms:
        if not any(file.path.startswith("LICENSES/beside") for file in bundle.manifest.files):
            warn("no copy of the licence lay beside the weights: put LICENSE there, export again")
        warn(exported.exported.terms)
