"""What torch itself says, in float32 on the CPU. Everything else is compared to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge_export.backbone import concatenated, official_backbone, run_torch, tap_scales
from anoco_edge_export.lazy_import import load
from anoco_edge_export.recipe import Recipe, Taps

Features = NDArray[np.float32]


@dataclass(frozen=True)
class TorchReference:
    """Features [pictures, N, d]; what each of several taps is scaled by; for the one `picture`
    also the end of every layer, to find out where a graph goes astray."""

    features: Features
    scales: tuple[float, ...]
    picture: int
    ends: dict[str, Features]


def run_torch_reference(
    recipe: Recipe, taps: Taps, model: Any, pixels: NDArray[np.uint8], given: int
) -> TorchReference:
    """Run timm's untouched model on `pixels`, of which the first `given` are the user's.

    Taps are scaled by their norms on those, and the layers' ends are kept of the one after them.
    """
    module = official_backbone(recipe, taps, model)
    tokens, ends = [], {}
    for index, picture in enumerate(pixels):  # one at a time: memory stays that of one picture
        tapped, layers = run_torch(module, picture[None])
        tokens.append(tapped)
        if index == given:
            ends = {name: np.asarray(end.numpy(), np.float32)[0] for name, end in layers.items()}
    known = tokens[:given] or tokens
    scales = tap_scales([load("torch").cat(tap) for tap in zip(*known, strict=True)])
    features = [concatenated(tapped, scales).numpy() for tapped in tokens]
    return TorchReference(np.concatenate(features), scales, given, ends)
