"""From a recipe to a backbone's files in a bundle; nothing comes out that torch disagrees with."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge import __version__
from anoco_edge.bundle.schema import Backbone, Fit, InputContract
from anoco_edge.errors import UsageError
from anoco_edge_export.backbone import build_backbone, create_model, torch_features
from anoco_edge_export.heavy import load
from anoco_edge_export.licenses import license_files
from anoco_edge_export.onnx_graph import export_onnx
from anoco_edge_export.parity import check_parity
from anoco_edge_export.pictures import rendered_picture
from anoco_edge_export.recipe import Recipe, load_recipe
from anoco_edge_export.selftest import selftest_file
from anoco_edge_export.weights import load_weights

Picture = NDArray[np.uint8]

_TOOLS = ("torch", "timm", "onnx", "onnxscript", "onnxruntime", "numpy", "safetensors")
_PARITY_PICTURES = 3
_MIN_PATCHES = 4  # a side; fewer leave the self-test nothing to compare


@dataclass(frozen=True)
class ExportedBackbone:
    """What a bundle stores of its backbone; `files` by their path in the bundle."""

    backbone: Backbone
    input: InputContract
    parity: dict[str, Any]
    files: dict[str, bytes]
    tools: dict[str, str]


def export_backbone(
    backbone_id: str,
    *,
    size: tuple[int, int] | None = None,
    weights: str | None = None,
    fit: Fit = "stretch",
    pictures: Sequence[Picture] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> ExportedBackbone:
    """Export a backbone for pictures of `size` (width, height) and compare it with torch.

    `weights` is a file or `random:SEED`; without it they come from the recipe's package.
    `pictures` are RGB at that size, for the comparison; rendered ones fill up.

    >>> export_backbone("efficientnet-lite0", size=(390, 384))
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: width 390 is not a multiple of 16; use 384 or 400
    """
    recipe = load_recipe(backbone_id)
    width, height = check_size(recipe, size or recipe.size)
    contract = _contract(recipe, width, height, fit)
    given = _check_pictures(pictures, width, height)
    tools = _tools()

    progress(f"loading {recipe.title}")
    model = create_model(recipe)
    loaded = load_weights(recipe, model, weights)
    module = build_backbone(recipe, model, loaded.state)

    progress(f"running torch at {width}x{height}")
    own = rendered_picture(width, height)
    pixels, names = _parity_pictures(given, own)
    expected = np.concatenate([torch_features(module, p[None]) for p in pixels])

    progress("tracing to ONNX")
    meta = _graph_metadata(recipe, loaded.record.sha256)
    tokens = (contract.rows * contract.cols, contract.dim)
    onnx = export_onnx(module, width, height, tokens, meta)

    progress(f"comparing ONNX Runtime with torch on {len(names)} pictures")
    limits = recipe.parity["fp32"]
    parity = check_parity(expected, onnx, pixels, limits, names, contract.cols)
    return ExportedBackbone(
        backbone=Backbone(
            id=recipe.id,
            architecture=recipe.architecture,
            tap=recipe.tap,
            feature_norm=recipe.feature_norm,
            pooling=recipe.pooling,
            weights=loaded.record,
        ),
        input=contract,
        parity={"precision": "fp32", **parity, "versions": tools},
        files={
            "backbone.onnx": onnx,
            "selftest.safetensors": selftest_file(own, expected[len(given)]),
            **license_files(recipe, loaded),
        },
        tools=tools,
    )


def check_size(recipe: Recipe, size: tuple[int, int]) -> tuple[int, int]:
    """Width and height, if the backbone's stride divides them."""
    stride, least = recipe.stride, recipe.stride * _MIN_PATCHES
    for name, side in zip(("width", "height"), size, strict=True):
        if side < least:
            raise UsageError(f"{name} {side} is too small", hint=f"use {least} or more")
        if side % stride:
            below = side // stride * stride
            raise UsageError(
                f"{name} {side} is not a multiple of {stride}",
                hint=f"use {below} or {below + stride}",
            )
    return size


def _check_pictures(pictures: Sequence[Picture], width: int, height: int) -> list[Picture]:
    """As many of the pictures as are compared; a wrong shape is an error of the caller."""
    for index, picture in enumerate(pictures):
        if picture.dtype != np.uint8 or picture.shape != (height, width, 3):
            raise UsageError(
                f"picture {index + 1} is {picture.dtype} of shape {picture.shape}",
                hint=f"pass uint8 RGB of shape {(height, width, 3)}",
            )
    return list(pictures[:_PARITY_PICTURES])


def _parity_pictures(given: list[Picture], own: Picture) -> tuple[NDArray[np.uint8], list[str]]:
    """The user's pictures, then the self-test's, then others until there are enough."""
    height, width = own.shape[:2]
    more = [rendered_picture(width, height, i) for i in range(1, _PARITY_PICTURES - len(given))]
    names = [f"picture {i + 1}" for i in range(len(given))]
    names += [f"rendered {i}" for i in range(1 + len(more))]
    return np.stack([*given, own, *more]), names


def _contract(recipe: Recipe, width: int, height: int, fit: Fit) -> InputContract:
    if fit not in ("stretch", "letterbox"):
        raise UsageError(f"unknown fit {fit!r}", hint="use stretch or letterbox")
    r, g, b = (round(255 * m) for m in recipe.mean)
    return InputContract(
        width=width,
        height=height,
        fit=fit,
        fill=(r, g, b),  # the mean becomes 0, which is also what convolutions pad with
        stride=recipe.stride,
        rows=height // recipe.stride,
        cols=width // recipe.stride,
        dim=recipe.dim,
    )


def _graph_metadata(recipe: Recipe, weights_sha256: str) -> dict[str, str]:
    return {
        "anoco_edge.recipe": recipe.id,
        "anoco_edge.architecture": recipe.architecture,
        "anoco_edge.tap": recipe.tap,
        "anoco_edge.pooling": recipe.pooling,
        "anoco_edge.feature_norm": recipe.feature_norm,
        "anoco_edge.weights_sha256": weights_sha256,
    }


def _tools() -> dict[str, str]:
    """Versions of everything that took part; also the moment a missing one is noticed."""
    versions = {name: str(load(name).__version__) for name in _TOOLS}
    return {"anoco-edge": __version__, "python": platform.python_version(), **versions}
