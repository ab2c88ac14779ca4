"""From a recipe to a backbone's files in a bundle; nothing comes out that torch disagrees with."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge import __version__
from anoco_edge.bundle.schema import Backbone
from anoco_edge.errors import UsageError
from anoco_edge.images.contract import Fit, InputContract
from anoco_edge.images.decode import check_rgb
from anoco_edge.images.preprocess import prepare
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching import NewPicture
from anoco_edge_export.backbone import exported_backbone, filled_model, set_size
from anoco_edge_export.cost import check_memory
from anoco_edge_export.expected import ask_torch
from anoco_edge_export.half import convert
from anoco_edge_export.heavy import load
from anoco_edge_export.int8 import Int8Export, to_int8
from anoco_edge_export.islands import check_islands
from anoco_edge_export.licenses import license_files
from anoco_edge_export.onnx_graph import check, save, trace
from anoco_edge_export.parity import Gate, check_parity
from anoco_edge_export.pictures import rendered_picture
from anoco_edge_export.recipe import Int8Rules, Precision, Recipe, TapNorm, Taps, load_recipe
from anoco_edge_export.selftest import selftest_file
from anoco_edge_export.weights import LoadedWeights, load_weights

Picture = NDArray[np.uint8]

_TOOLS = ("torch", "timm", "onnx", "onnxscript", "onnxruntime", "numpy", "safetensors")
_PARITY_PICTURES = 3
_MAX_SIDE = 8192  # pixels; a larger picture is better looked at in tiles
_MIN_PATCHES = 4  # a side; fewer leave the self-test nothing to compare


@dataclass(frozen=True)
class ExportedBackbone:
    """What a bundle stores of its backbone; `files` by their path in the bundle."""

    backbone: Backbone
    input: InputContract
    parity: dict[str, Any]
    files: dict[str, bytes | Path]
    tools: dict[str, str]
    terms: str
    variant: str
    layers: tuple[int, int]  # how many are in the graph, of how many


def export_backbone(
    backbone_id: str,
    workspace: Path,
    *,
    size: tuple[int, int] | None = None,
    layers: Sequence[int] | None = None,
    tap_norm: TapNorm | None = None,
    weights: str | None = None,
    precision: Precision = "fp32",
    islands: Sequence[str] | None = None,
    fit: Fit = "stretch",
    pictures: Sequence[Picture] = (),
    calibration: Sequence[NewPicture] = (),
    target: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> ExportedBackbone:
    """Export a backbone for pictures of `size` (width, height) and compare it with torch.

    The graph is written into the folder `workspace`. `weights` is a file or `random:SEED`;
    without it they come from the recipe's package or the hub. `pictures` are RGB, for the
    comparison; rendered ones fill up. `calibration` are pictures of good parts, for INT8 ranges.
    `islands` are the parts of an FP16 graph that stay FP32, without them the recipe's. `target` is
    the bundle that the files are for: a full disk names it and not the workspace.

    >>> export_backbone("efficientnet-lite0", Path(), size=(390, 384))
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: width 390 is not a multiple of 16; use 384 or 400
    """
    recipe = load_recipe(backbone_id)
    rules = _int8_rules(recipe, precision, calibration)
    taps = recipe.tapped(layers, tap_norm)
    width, height = check_size(taps, size or recipe.size)
    contract = _contract(recipe, taps, width, height, fit)
    given = _prepared(pictures or [c.rgb for c in calibration[:_PARITY_PICTURES]], contract)
    good = [prepare(picture.rgb, contract)[0] for picture in calibration]
    tools = _tools()
    check_islands(islands or ())
    check_memory(recipe, taps, width, height)

    progress(f"loading {recipe.title}")
    loaded = load_weights(recipe, weights, progress)
    model = filled_model(recipe, loaded.architecture, loaded.state)
    loaded = replace(loaded, state={})  # the model has it now, and large ones count
    set_size(model, width, height)

    progress(f"running torch at {width}x{height}")
    own = rendered_picture(width, height)
    pixels, names = _parity_pictures(given, own)
    expected = ask_torch(recipe, taps, model, pixels, len(given))

    progress("tracing to ONNX")
    module = exported_backbone(recipe, taps, model, expected.scales)
    graph = trace(module, width, height, list(expected.ends), _metadata(recipe, taps, loaded))
    del module, model  # weights of a large model are there twice by now
    gate = Gate(expected, pixels, recipe.parity[precision], names, contract.cols)
    kept, place = recipe.islands if islands is None else islands, str(target or workspace)
    how: dict[str, Any] = {}
    if precision == "fp16":
        graph, done = convert(graph, kept)
        how = {"half": asdict(done)}
    elif rules is not None:
        job = Int8Export(gate, rules, kept, good, workspace, place, progress)
        graph, report = to_int8(graph, job)
        how = {"int8": {**report, "pictures": _named(calibration)}}
    with writing(place):
        files = save(graph, workspace / "backbone.onnx")
    check(files[0], width, height, (contract.rows * contract.cols, contract.dim))

    progress(f"comparing ONNX Runtime with torch on {len(names)} pictures")
    parity = check_parity(gate, graph, files[0])
    return ExportedBackbone(
        backbone=_carried_out(recipe, taps, loaded, expected.scales, precision),
        input=contract,
        parity={"precision": precision, **parity, **how, "versions": tools},
        files={
            **{file.name: file for file in files},
            "selftest.safetensors": selftest_file(own, expected.features[len(given)]),
            **license_files(recipe, loaded),
        },
        tools=tools,
        terms="" if loaded.record.random else recipe.weights.terms,
        variant=loaded.reason,
        layers=(len(expected.ends), len(recipe.layers)),
    )


def check_size(taps: Taps, size: tuple[int, int]) -> tuple[int, int]:
    """Width and height, if the taps' strides divide them."""
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
    recipe: Recipe, precision: Precision, calibration: Sequence[NewPicture]
) -> Int8Rules | None:
    """The recipe's, where INT8 is asked for and can be had."""
    if precision != "int8":
        return None
    if recipe.int8 is None:
        raise UsageError(f"{recipe.id} has no INT8 recipe", hint="use --precision fp16")
    if not calibration:
        raise UsageError(
            "INT8 takes its ranges from pictures of good parts, and none were given",
            hint="pass --calib DIR",
        )
    return recipe.int8


def _named(calibration: Sequence[NewPicture]) -> list[dict[str, str]]:
    return [{"name": c.name, "sha256": sha256_bytes(c.data)} for c in calibration]


def _prepared(pictures: Sequence[Picture], contract: InputContract) -> list[Picture]:
    """As many of the pictures as are compared, as the backbone will see them."""
    return [
        prepare(check_rgb(picture, "a picture to compare"), contract)[0]
        for picture in pictures[:_PARITY_PICTURES]
    ]


def _parity_pictures(given: list[Picture], own: Picture) -> tuple[NDArray[np.uint8], list[str]]:
    """The user's pictures, then the self-test's, then others until there are enough."""
    height, width = own.shape[:2]
    more = [rendered_picture(width, height, i) for i in range(1, _PARITY_PICTURES - len(given))]
    names = [f"picture {i + 1}" for i in range(len(given))]
    names += [f"rendered {i}" for i in range(1 + len(more))]
    return np.stack([*given, own, *more]), names


def _contract(recipe: Recipe, taps: Taps, width: int, height: int, fit: Fit) -> InputContract:
    if fit not in ("stretch", "letterbox"):
        raise UsageError(f"unknown fit {fit!r}", hint="use stretch or letterbox")
    r, g, b = (round(255 * m) for m in recipe.mean)
    return InputContract(
        width=width,
        height=height,
        fit=fit,
        fill=(r, g, b),  # the mean becomes 0, which is also what convolutions pad with
        stride=taps.stride,
        rows=height // taps.stride,
        cols=width // taps.stride,
        dim=taps.dim,
    )


def _carried_out(
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
    """Versions of everything that took part; also the moment a missing one is noticed."""
    versions = {name: str(load(name).__version__) for name in _TOOLS}
    return {"anoco-edge": __version__, "python": platform.python_version(), **versions}
