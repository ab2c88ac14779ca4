"""The options of `anoco-edge export`, and what they ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anoco_edge.cli.options import check_product_name, parse_layers, parse_size
from anoco_edge.cli.settings import read_settings
from anoco_edge.errors import UsageError, missing
from anoco_edge.pipeline.patch_mask import check_shape
from anoco_edge.teaching import NO_CHANGE, NewPicture, Settings

if TYPE_CHECKING:
    from anoco_edge_calibration.int8 import CalibrationSet

DEFAULT_BACKBONE = "dinov3-l"

BackboneOption = Annotated[
    str | None, typer.Option(help=f"Backbone; default: {DEFAULT_BACKBONE}. --list shows all.")
]
ListOption = Annotated[bool, typer.Option("--list", help="Show the backbones.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="Bundle to write; default: BACKBONE.anoco.")
]
SizeOption = Annotated[str | None, typer.Option(help="Input size: 384, or 640x896.")]
LayerOption = Annotated[int | None, typer.Option(help="Block whose end is tapped, counted from 1.")]
LayersOption = Annotated[str | None, typer.Option(help="Several of them, concatenated: 12,18.")]
TapNormOption = Annotated[
    Literal["none", "layernorm", "model"] | None,
    typer.Option(help="Norm after the tap: the model's final one, a plain one, or none."),
]
WeightsOption = Annotated[
    str | None, typer.Option(help="Weights file, or random:SEED; default: the recipe's own.")
]
PrecisionOption = Annotated[
    Literal["fp32", "fp16", "bf16", "int8"], typer.Option(help="Arithmetic of the backbone.")
]
CalibOption = Annotated[
    list[str] | None,
    typer.Option(help="For int8, pictures of good parts to take ranges from: 32 or more."),
]
IslandsOption = Annotated[
    str | None,
    typer.Option(help="For fp16 and bf16, what stays FP32: softmax,...; default: as proven."),
]
AllowUnfusedOption = Annotated[
    bool, typer.Option(help="Export even if TensorRT does not fuse attention, which is slow.")
]
PlanEngineOption = Annotated[
    Literal["onnxruntime", "openvino", "tensorrt", "tensorrt-rtx"],
    typer.Option(help="Build for this engine at once; the first two need nothing built."),
]
TargetOption = Annotated[
    str | None, typer.Option(help="GPUs to build tensorrt-rtx plans for: sm86,sm89.")
]
BatchOption = Annotated[int, typer.Option(min=1, help="Most pictures at once, for plans.")]
FitOption = Annotated[
    Literal["stretch", "letterbox"],
    typer.Option(help="How a picture is brought to the input size."),
]
InputOption = Annotated[
    Literal["uint8", "float"],
    typer.Option("--input", help="What the graph takes: bytes, or float for DeepStream."),
]
PromptsOption = Annotated[
    str | None,
    typer.Option(help="For WinCLIP, objects to write prompts about (commas): bottle,metal nut."),
]
RefsOption = Annotated[
    list[str] | None, typer.Option(help="Pictures of good parts to enrol at once.")
]
ShotsOption = Annotated[
    int | None, typer.Option(min=1, help="Take only so many of them, drawn by --seed.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of that draw.")]
RefsProductOption = Annotated[str | None, typer.Option(help="Name of the product for --refs.")]
PackagedBundleOption = Annotated[
    Path | None, typer.Option(help="For the next two: package this bundle; export nothing.")
]
OverwriteOption = Annotated[bool, typer.Option(help="Replace an existing bundle.")]


@dataclass(frozen=True)
class ExportRequest:
    """What to export and where to, and what to teach the new bundle."""

    backbone: str
    path: Path
    options: Mapping[str, Any]
    """The options of `anoco_edge_export.export_bundle`."""
    engine: str
    batch: int
    product: str | None
    settings: Settings
    pictures: Sequence[NewPicture]


def read_export(options: Mapping[str, Any]) -> ExportRequest:
    """Check the options of the command, by name, and read the pictures they name.

    Whatever is wrong with them shows here, where it costs seconds, and not after an export.
    """
    settings = read_settings(options)
    _check_combination(options, settings)
    targets = _targets(options["engine"], options["target"])
    backbone = options["backbone"] or DEFAULT_BACKBONE
    layers = parse_layers(options["layer"], options["layers"])
    path = _bundle_path(options["out_"], backbone)
    pictures = read_pictures(options["refs"], options["shots"], options["seed"])
    for picture in pictures:
        first = pictures[0]
        check_shape((picture.width, picture.height), picture.name, (first.width, first.height))
    islands = options["islands"]
    return ExportRequest(
        backbone,
        path,
        {
            "size": parse_size(options["size"]),
            "layers": layers,
            "tap_norm": options["tap_norm"],
            "weights": options["weights"],
            "precision": options["precision"],
            "islands": islands.split(",") if islands is not None else None,
            "allow_unfused": options["allow_unfused"],
            "fit": options["fit"],
            "pixels": "float32" if options["input_"] == "float" else "uint8",
            "prompts": parse_prompts(options["prompts"]),
            "pictures": [picture.rgb for picture in pictures[:3]],
            "calibration": _calibration_set(options["calib"]),
            "targets": targets,
            "batch": options["batch"],
            "overwrite": options["overwrite"],
        },
        options["engine"],
        options["batch"],
        options["product"],
        settings,
        pictures,
    )


def _check_combination(options: Mapping[str, Any], settings: Settings) -> None:
    """Refuse options that have no effect without another one."""
    check_product_name(options["product"])
    refs = options["refs"]
    if (options["single_file"] or options["triton"]) and not refs:
        raise UsageError(
            "a single file holds references, and none were given",
            hint="pass --refs PICTURES, or --bundle with a product that has some",
        )
    if options["product"] is not None and not refs:
        raise UsageError("--product names what --refs teaches", hint="pass --refs, or leave it out")
    if settings != NO_CHANGE and not refs:
        raise UsageError("tiles are for the product of --refs", hint="pass --refs, or tile later")
    if options["islands"] is not None and options["precision"] not in ("fp16", "bf16"):
        raise UsageError(
            "--islands is for --precision fp16 and bf16", hint="pass one, or leave it out"
        )
    if options["allow_unfused"] and options["precision"] == "fp32":
        raise UsageError(
            "--allow-unfused is for --precision fp16, bf16 and int8",
            hint="pass one, or leave it out",
        )
    if options["calib"] and options["precision"] != "int8":
        raise UsageError("--calib is for --precision int8", hint="pass that, or leave it out")


def parse_prompts(text: str | None) -> tuple[str, ...]:
    """Read the names of objects.

    >>> parse_prompts("bottle, metal nut"), parse_prompts(None)
    (('bottle', 'metal nut'), ())
    """
    if text is None:
        return ()
    return tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))


def check_only_packages(context: typer.Context) -> None:
    """Refuse options that would change the bundle of --bundle, which is packaged as it is."""
    with_bundle = {"bundle", "product", "single_file", "triton", "overwrite", "json_"}
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source and source.name != "DEFAULT"}
    for name in sorted(given - with_bundle):
        option = "--" + name.rstrip("_").replace("_", "-")
        raise UsageError("--bundle takes a bundle as it is", hint=f"leave out {option}")
    if not given & {"single_file", "triton"}:
        raise UsageError(
            "--bundle alone exports nothing", hint="say --single-file out.onnx or --triton DIR"
        )


def read_pictures(refs: Sequence[str] | None, shots: int | None, seed: int) -> list[NewPicture]:
    """Read the pictures that were named, or so many of them, drawn by a seed."""
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


def _calibration_set(calib: Sequence[str] | None) -> CalibrationSet | None:
    """Return the pictures that INT8 ranges are taken from."""
    if not calib:
        return None
    from anoco_edge.sources.files import find_pictures

    try:
        from anoco_edge_calibration.int8 import CalibrationSet
    except ImportError:
        raise missing("anoco_edge_calibration", "export", "to export in INT8") from None
    return CalibrationSet.from_files(find_pictures(calib, "save some of its frames as pictures"))


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
    if engine == "tensorrt":  # where it is missing, say so now and not after an export
        from anoco_edge.plans.device import current_device
        from anoco_edge.plans.tensorrt_modules import load_module

        load_module("tensorrt")
        current_device()
    return ()


def _bundle_path(out: str | Path | None, backbone: str) -> Path:
    from anoco_edge.bundle.store import SUFFIX

    target = Path(out or f"{backbone}{SUFFIX}")
    if not target.name:
        raise UsageError(f"--out {target} is not a name for a bundle", hint="give NAME.anoco")
    return target if target.suffix == SUFFIX else target.with_name(target.name + SUFFIX)
