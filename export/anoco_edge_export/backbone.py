"""The backbone as one torch module: raw pixels in, patch features out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge_export.families import family
from anoco_edge_export.heavy import load
from anoco_edge_export.recipe import Recipe

_NORM_EPS = 1e-6  # as in the ViTs' own LayerNorm


def create_model(recipe: Recipe) -> Any:
    """timm's model of the recipe, without weights and without asking the network."""
    return load("timm").create_model(recipe.architecture, pretrained=False)


def build_backbone(recipe: Recipe, model: Any, state: Mapping[str, Any]) -> Any:
    """uint8 [batch, H, W, 3] RGB -> float32 [batch, N, d], everything in between inside.

    The normalisation stays apart from the first convolution: that pads with zeros after it, so
    folding it in would be wrong along the border.
    """
    torch = load("torch")
    functional = torch.nn.functional
    base: Any = torch.nn.Module
    model.load_state_dict(state, strict=True)

    class PatchFeatures(base):  # type: ignore[misc]  # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.trunk = family(recipe.family).cut(model, recipe.tap)
            self.register_buffer("mean", 255 * torch.tensor(recipe.mean).reshape(3, 1, 1))
            self.register_buffer("std", 255 * torch.tensor(recipe.std).reshape(3, 1, 1))

        def forward(self, pixels: Any) -> Any:
            # Cast first: TensorRT takes bytes only as the input of a Cast.
            x = pixels.to(torch.float32).permute(0, 3, 1, 2)
            x = self.trunk((x - self.mean) / self.std)
            if recipe.pooling == "avg3x3":
                x = functional.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
            tokens = x.flatten(2).transpose(1, 2)
            if recipe.feature_norm == "layernorm":
                tokens = functional.layer_norm(tokens, (recipe.dim,), eps=_NORM_EPS)
            return tokens

    return PatchFeatures().eval().requires_grad_(False)


def torch_features(module: Any, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What torch says in float32 on the CPU: [batch, N, d]. Everything else is compared to it."""
    torch = load("torch")
    with torch.no_grad():
        features = module(torch.from_numpy(np.ascontiguousarray(pixels)))
    return np.asarray(features.numpy(), dtype=np.float32)
