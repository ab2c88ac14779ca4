"""The backbone as one torch module that takes raw pixels and gives patch features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge_export.families import StateDict, Tensor, family
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.recipe import Recipe, Taps

Features = NDArray[np.float32]

_NORM_EPS = 1e-6  # the epsilon of the LayerNorm inside ViTs


def create_model(recipe: Recipe, variant: str | None = None, **sizes: int) -> Any:
    """Create timm's model of the recipe without trained weights or use of the network.

    It has no head, unless the recipe needs the one that leads to the space of texts. `sizes` are
    timm's own, such as `depth`, and stand in place of those of the architecture.
    """
    name = variant or recipe.architecture
    model = lazy_import("timm").create_model(
        name, pretrained=False, num_classes=recipe.embedding, **sizes
    )
    return model.eval().requires_grad_(False)


def filled_model(recipe: Recipe, architecture: str, state: Mapping[str, Tensor]) -> Any:
    """Create timm's model with these weights; it uses them as they are, without a second copy."""
    model = create_model(recipe, architecture)
    model.load_state_dict(state, strict=True, assign=True)
    return model.requires_grad_(False)


def set_size(model: Any, width: int, height: int) -> None:
    """Fit the positions of a transformer to pictures of this size; CNNs take any size."""
    if hasattr(model, "set_input_size"):
        model.set_input_size(img_size=(height, width))


def official_backbone(recipe: Recipe, taps: Taps, model: Any) -> Any:
    """Return timm's unchanged model: uint8 NHWC -> (tokens by tap, ends by layer)."""
    torch = lazy_import("torch")
    base: Any = torch.nn.Module
    names = [layer.tap for layer in taps.layers]

    class OfficialBackbone(base):  # type: ignore[misc]  # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.trunk = family(recipe.family).official(model, names, taps.norm == "model")
            self.register_buffer("mean", torch.tensor(recipe.mean).reshape(3, 1, 1))
            self.register_buffer("std", torch.tensor(recipe.std).reshape(3, 1, 1))

        def forward(self, pixels: Any) -> tuple[list[Tensor], StateDict]:
            x = pixels.permute(0, 3, 1, 2).to(torch.float32) / 255
            tapped, ends = self.trunk((x - self.mean) / self.std)
            return _tokens(recipe, taps, tapped), ends

    return OfficialBackbone().eval()


def exported_backbone(
    recipe: Recipe, taps: Taps, model: Any, scales: Sequence[float], *, whole: bool = False
) -> Any:
    """Return the form that is exported: uint8 NHWC -> features [batch, N, d], then ends by layer.

    This changes `model`, so compute the reference before. `whole` keeps attention in one piece,
    as a GPU wants it; a CPU computes a long one faster in several.
    """
    torch = lazy_import("torch")
    base: Any = torch.nn.Module
    names = [layer.tap for layer in taps.layers]

    class ExportableBackbone(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.trunk = family(recipe.family).rewritten(
                model, names, taps.norm == "model", recipe.mean, recipe.std, whole=whole
            )

        def forward(self, pixels: Any) -> tuple[Any, ...]:
            # The Cast comes first: TensorRT takes bytes only as the input of a Cast.
            x = pixels.to(torch.float32).permute(0, 3, 1, 2)
            tapped, ends = self.trunk(x)
            return (concatenated(_tokens(recipe, taps, tapped), scales), *ends.values())

    return ExportableBackbone().eval().requires_grad_(False)


def concatenated(tokens: Sequence[Any], scales: Sequence[float]) -> Any:
    """Concatenate the features of several taps, each multiplied by its scale."""
    if len(tokens) == 1:
        return tokens[0]
    scaled = [t * scale for t, scale in zip(tokens, scales, strict=True)]
    return lazy_import("torch").cat(scaled, dim=-1)


def tap_scales(tokens: Sequence[Any]) -> tuple[float, ...]:
    """Return factors that give every tap the mean norm of the first; none for a single tap.

    Without them a tap with large norms would decide every cosine alone.
    """
    if len(tokens) == 1:
        return ()
    norms = [float(t.norm(dim=-1).mean()) for t in tokens]
    return tuple(norms[0] / norm for norm in norms)


def run_torch(module: Any, pixels: NDArray[np.uint8]) -> Any:
    """Run a module in float32 on the CPU."""
    torch = lazy_import("torch")
    with torch.no_grad():
        return module(torch.from_numpy(np.ascontiguousarray(pixels)))


def _tokens(recipe: Recipe, taps: Taps, tapped: Sequence[Any]) -> list[Any]:
    """Bring every tap to [batch, N, d] on the finest grid, pooled and normed as the recipe says."""
    functional = lazy_import("torch").nn.functional
    grids = [t.shape[-2:] for t in tapped if t.ndim == 4]
    tokens = []
    for x, layer in zip(tapped, taps.layers, strict=True):
        if x.ndim == 4:
            if recipe.pooling == "avg3x3":
                x = functional.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
            if x.shape[-2:] != max(grids):
                x = functional.interpolate(x, size=max(grids), mode="bilinear")
            x = x.flatten(2).transpose(1, 2)
        if taps.norm == "layernorm":
            x = functional.layer_norm(x, (layer.dim,), eps=_NORM_EPS)
        tokens.append(x)
    return tokens
