"""timm's ResNets: a stem and then four layers of blocks; a tap is the end of a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anoco_edge_export.families import StateDict, Tensor, cnn
from anoco_edge_export.lazy_import import lazy_import

_LAYERS = ("layer1", "layer2", "layer3", "layer4")


def official(model: Any, taps: Sequence[str], norm: bool) -> Any:
    """Return the stem and the layers up to the last tap; the head never runs."""
    stem = (model.conv1, model.bn1, model.act1, model.maxpool)
    return cnn.official(stem, {name: getattr(model, name) for name in _LAYERS}, taps)


def rewritten(
    model: Any,
    taps: Sequence[str],
    norm: bool,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    whole: bool = False,  # nothing here is ever cut into pieces
) -> Any:
    """Return the same computation for raw pixels."""
    return cnn.rewritten(official(model, taps, norm), mean, std)


def convert(layout: str, state: Mapping[str, Tensor], wanted: Sequence[str]) -> StateDict:
    """Return the tensors as they are: torchvision and timm use the same names.

    >>> convert("torchvision", {"layer2.0.bn3.bias": 1}, [])
    {'layer2.0.bn3.bias': 1}
    """
    return dict(state)


def draw(state: StateDict, generator: Any) -> None:
    """Redraw as for every CNN, and the last norm of each block too.

    timm initializes that norm with zero, which would switch the block off.
    """
    cnn.draw(state, generator)
    torch = lazy_import("torch")
    for key, value in state.items():
        if key.endswith("bn3.weight"):
            value.copy_(torch.empty_like(value).uniform_(0.1, 0.5, generator=generator))
