"""Exports a backbone: from a recipe to the files of a bundle, checked against torch."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anoco_edge import __version__
from anoco_edge.bundle.parity_report import Fp16Report, FusionReport, Int8Report, ParityReport
from anoco_edge.bundle.schema import Backbone
from anoco_edge.bundle.store import PROMPTS
from anoco_edge.errors import UsageError
from anoco_edge.images.contract import InputContract
from anoco_edge.images.decode import check_rgb
from anoco_edge.images.preprocess import prepare
from anoco_edge.storage.atomic_files import writing
from anoco_edge_export.backbone import exported_backbone, filled_model, set_size
from anoco_edge_export.cost import check_memory
from anoco_edge_export.float_input import take_float_pixels
from anoco_edge_export.fp16 import convert_to_half
from anoco_edge_export.fp32_islands import check_islands
from anoco_edge_export.fusion import check_fusion
from anoco_edge_export.half_format import HALF_FORMATS
from anoco_edge_export.int8 import Int8Export, to_int8
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.licenses import license_files
from anoco_edge_export.onnx_graph import check_backbone_graph, save_graph, trace
from anoco_edge_export.options import ExportOptions, Picture
from anoco_edge_export.parity import Gate, check_parity
from anoco_edge_export.range_collector import RangeCollector
from anoco_edge_export.recipe import (
    Int8Rules,
    ParityLimits,
    Precision,
    Recipe,
    Taps,
    load_recipe,
)
from anoco_edge_export.selftest import selftest_file
from anoco_edge_export.synthetic import synthetic_picture
from anoco_edge_export.text import prompt_file, tokenize_prompts
from anoco_edge_export.torch_reference import run_torch_reference
from anoco_edge_export.weights import LoadedWeights, load_weights

_TOOLS = ("torch", "timm", "onnx", "onnxscript", "onnxruntime", "numpy", "safetensors")
_PARITY_PICTURES = 3  # the number of pictures that are compared with torch
_MAX_SIDE = 8192  # pixels; a larger picture is better inspected in tiles
_MIN_PATCHES = 4  # along each side; fewer leave the self-test nothing to compare


DEFAULTS = ExportOptions()


@dataclass(frozen=True)
class ExportedBackbone:
    """Everything that a bundle stores of its backbone.

    `files` are contents or files to move in, by their path in the bundle. `layers` says how many
    layers are in the graph, and how many the model has.
    """

    backbone: Backbone
    input: InputContract
    parity: ParityReport
    files: dict[str, bytes | Path]
    tools: dict[str, str]
    terms: str
    variant: str
    layers: tuple[int, int]


def export_backbone(
    backbone_id: str,
    workspace: Path,
    options: ExportOptions = DEFAULTS,
    *,
    target: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> ExportedBackbone:
    """Export a backbone into the folder `workspace`, and compare it with torch.

    `target` is the bundle that the files are for: an error about a full disk names it in place of
    the workspace. `progress` is called with a few words at every stage.

    >>> export_backbone("efficientnet-lite0", Path(), ExportOptions(size=(390, 384)))
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: width 390 is not a multiple of 16; use 384 or 400
    """
    recipe = load_recipe(backbone_id)
    precision, calibration = options.precision, options.calibration
    rules = _int8_rules(recipe, precision, calibration)
    limits = _limits(recipe, precision)
    good_parts = calibration.pictures if calibration is not None else ()
    taps = recipe.tapped(options.layers, options.tap_norm)
    width, height = check_input_size(taps, options.size or recipe.size)
    contract = _contract(recipe, taps, width, height, options)
    compared = options.pictures or [picture.rgb for picture in good_parts[:_PARITY_PICTURES]]
    given = _prepared(compared, contract)
    prepared = [prepare(picture.rgb, contract)[0] for picture in good_parts]
    tools = _tools()
    check_islands(options.islands or ())
    check_memory(recipe, taps, width, height)
    prompts = tokenize_prompts(recipe, options.prompts)

    progress(f"loading {recipe.title}")
    loaded = load_weights(recipe, options.weights, progress)
    texts: dict[str, bytes] = {}
    if prompts is not None:
        progress(f"encoding the prompts about {', '.join(prompts.objects)}")
        texts[PROMPTS] = prompt_file(recipe, prompts, loaded)
    model = filled_model(recipe, loaded.architecture, loaded.state)
    # The model holds the weights now, and a second copy would waste memory.
    loaded = replace(loaded, state={})
    set_size(model, width, height)

    progress(f"running torch at {width}x{height}")
    own = synthetic_picture(width, height)
    pixels, names = _parity_pictures(given, own)
    reference = run_torch_reference(recipe, taps, model, pixels, len(given))

    progress("tracing to ONNX")
    on_gpu = precision != "fp32"
    module = exported_backbone(recipe, taps, model, reference.scales, whole=on_gpu)
    graph = trace(module, width, height, list(reference.ends), _metadata(recipe, taps, loaded))
    del module, model  # the graph holds the weights a second time
    gate = Gate(reference, pixels, limits, names, contract.cols)
    islands = recipe.islands if options.islands is None else options.islands
    place = str(target or workspace)
    half_report: Fp16Report | None = None
    int8_report: Int8Report | None = None
    fusion: FusionReport | None = None
    if half := HALF_FORMATS.get(precision):
        graph, half_report = convert_to_half(graph, islands, half)
    elif rules is not None and calibration is not None:
        job = Int8Export(gate, rules, islands, calibration, prepared, workspace, place, progress)
        graph, int8_report = to_int8(graph, job)
    if contract.pixels == "float32":
        graph = take_float_pixels(graph)
        gate = replace(gate, pixels=contract.arranged(pixels))
    with writing(place):
        files = save_graph(graph, workspace / "backbone.onnx")
    tokens = (contract.rows * contract.cols, contract.dim)
    check_backbone_graph(files[0], width, height, tokens, contract.pixels)
    if on_gpu:
        progress("building with TensorRT-RTX to see what it fuses")
        fusion = check_fusion(graph, files[0], contract, options.allow_unfused)

    progress(f"comparing ONNX Runtime with torch on {len(names)} pictures")
    parity = check_parity(gate, graph, files[0], precision)
    return ExportedBackbone(
        backbone=_backbone_record(recipe, taps, loaded, reference.scales, precision),
        input=contract,
        parity=replace(parity, half=half_report, int8=int8_report, fusion=fusion, versions=tools),
        files={
            **{file.name: file for file in files},
            "selftest.safetensors": selftest_file(own, reference.features[len(given)]),
            **texts,
            **license_files(recipe, loaded),
        },
        tools=tools,
        terms="" if loaded.record.random else recipe.weights.terms,
        variant=loaded.reason,
        # Where windows are tapped, a recipe names fewer taps than its model has layers.
        layers=(len(reference.ends), max(len(reference.ends), len(recipe.layers))),
    )


def check_input_size(taps: Taps, size: tuple[int, int]) -> tuple[int, int]:
    """Return width and height; raise UsageError unless the strides of the taps divide them."""
    stride, least = taps.step, taps.step * _MIN_PATCHES
    for name, side in zip(("width", "height"), size, strict=True):
        if side > _MAX_SIDE:
            raise UsageError(f"{name} {side} is too large", hint=f"use {_MAX_SIDE} or less")
        if side < least:
            raise UsageError(f"{name} {side} is too small", hint=f"use {least} or more")
        if side % stride:
            below = side // stride * stride
            raise UsageError(
                f"{name} {side} is not a multiple of {stride}",
                hint=f"use {below} or {below + stride}",
            )
    return size


def _int8_rules(
    recipe: Recipe, precision: Precision, calibration: RangeCollector | None
) -> Int8Rules | None:
    """Return the recipe's rules for INT8, or None where another precision is asked for."""
    if precision != "int8":
        return None
    if recipe.int8 is None:
        raise UsageError(f"{recipe.id} has no INT8 recipe", hint="use `precision='fp16'`")
    if calibration is None or not calibration.pictures:
        raise UsageError(
            "INT8 takes its ranges from pictures of good parts, and none were given",
            hint="pass pictures of good parts as `calibration`",
        )
    return recipe.int8


def _limits(recipe: Recipe, precision: Precision) -> ParityLimits:
    """Return how far the graph may be from torch in this precision."""
    if precision not in recipe.parity:
        raise UsageError(
            f"{recipe.id} has no {precision.upper()} recipe",
            hint=f"use one of {', '.join(recipe.parity)} as `precision`",
        )
    return recipe.parity[precision]


def _prepared(pictures: Sequence[Picture], contract: InputContract) -> list[Picture]:
    """Bring as many pictures as are compared to the size of the input."""
    return [
        prepare(check_rgb(picture, "a picture to compare"), contract)[0]
        for picture in pictures[:_PARITY_PICTURES]
    ]


def _parity_pictures(given: list[Picture], own: Picture) -> tuple[NDArray[np.uint8], list[str]]:
    """Stack the user's pictures, the self-test's, and synthetic ones until there are enough.

    Also return their names, for the report.
    """
    height, width = own.shape[:2]
    more = [synthetic_picture(width, height, i) for i in range(1, _PARITY_PICTURES - len(given))]
    names = [f"picture {i + 1}" for i in range(len(given))]
    names += [f"rendered {i}" for i in range(1 + len(more))]
    return np.stack([*given, own, *more]), names


def _contract(
    recipe: Recipe, taps: Taps, width: int, height: int, options: ExportOptions
) -> InputContract:
    if options.fit not in ("stretch", "letterbox"):
        raise UsageError(f"unknown fit {options.fit!r}", hint="use stretch or letterbox")
    if options.pixels not in ("uint8", "float32"):
        raise UsageError(f"unknown pixels {options.pixels!r}", hint="use uint8 or float32")
    r, g, b = (round(255 * m) for m in recipe.mean)
    return InputContract(
        width=width,
        height=height,
        fit=options.fit,
        pixels=options.pixels,
        fill=(r, g, b),  # normalization turns the mean into 0, with which convolutions pad
        stride=taps.stride,
        rows=height // taps.stride,
        cols=width // taps.stride,
        dim=taps.dim,
    )


def _backbone_record(
    recipe: Recipe,
    taps: Taps,
    loaded: LoadedWeights,
    scales: tuple[float, ...],
    precision: Precision,
) -> Backbone:
    return Backbone(
        id=recipe.id,
        architecture=loaded.architecture,
        tap=taps.name,
        tap_scales=scales,
        feature_norm=taps.norm,
        pooling=recipe.pooling,
        precision=precision,
        image_pooling=recipe.image_pooling,
        weights=loaded.record,
    )


def _metadata(recipe: Recipe, taps: Taps, loaded: LoadedWeights) -> dict[str, str]:
    return {
        "anoco_edge.recipe": recipe.id,
        "anoco_edge.architecture": loaded.architecture,
        "anoco_edge.tap": taps.name,
        "anoco_edge.pooling": recipe.pooling,
        "anoco_edge.feature_norm": taps.norm,
        "anoco_edge.weights_sha256": loaded.record.sha256,
    }


def _tools() -> dict[str, str]:
    """Return the version of every tool; the export fails here, early, where one is missing."""
    versions = {name: str(lazy_import(name).__version__) for name in _TOOLS}
    return {"anoco-edge": __version__, "python": platform.python_version(), **versions}
