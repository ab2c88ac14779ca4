"""The reference of the parity gate: what torch itself computes, in float32 on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge_export.backbone import concatenated, official_backbone, run_torch, tap_scales
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.recipe import Recipe, Taps

Features = NDArray[np.float32]


@dataclass(frozen=True)
class TorchReference:
    """What torch computes for all pictures.

    `features` are [pictures, N, d], `scales` are the factors of several taps. `ends` holds the
    output of every layer for the one picture with the index `picture`; it serves to find the first
    layer in which a graph differs.
    """

    features: Features
    scales: tuple[float, ...]
    picture: int
    ends: dict[str, Features]


def run_torch_reference(
    recipe: Recipe, taps: Taps, model: Any, pixels: NDArray[np.uint8], given: int
) -> TorchReference:
    """Run timm's unchanged model on `pixels`, of which the first `given` are the user's.

    Taps are scaled by their norms on the user's pictures, and the outputs of the layers are kept
    for the picture after them.
    """
    module = official_backbone(recipe, taps, model)
    tokens, ends = [], {}
    for index, picture in enumerate(pixels):  # one at a time, so that memory holds one picture only
        tapped, layers = run_torch(module, picture[None])
        tokens.append(tapped)
        if index == given:
            ends = {name: np.asarray(end.numpy(), np.float32)[0] for name, end in layers.items()}
    known = tokens[:given] or tokens
    scales = tap_scales([lazy_import("torch").cat(tap) for tap in zip(*known, strict=True)])
    features = [concatenated(tapped, scales).numpy() for tapped in tokens]
    return TorchReference(np.concatenate(features), scales, given, ends)
