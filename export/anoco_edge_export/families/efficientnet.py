"""timm's EfficientNets: a stem, then stages of blocks; a tap is the end of a stage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from anoco_edge_export.heavy import load

# efficientnet_lite_pytorch numbers the blocks through and its norms from 0; timm groups the blocks
# by stage and numbers the norms from 1. The first block expands nothing, so its norms are one less.
_OUTSIDE = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
_EXPANDING = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
_SEPARABLE = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
_BLOCK = re.compile(r"blocks\.(\d+)\.(\d+)\.")


def cut(model: Any, tap: str) -> Any:
    """Stem and stages up to and with `tap` ("blocks.4"); the head never runs."""
    last = int(tap.removeprefix("blocks."))
    nn = load("torch.nn")
    return nn.Sequential(model.conv_stem, model.bn1, *model.blocks[: last + 1])


def rename(layout: str, key: str, wanted: Sequence[str]) -> str:
    """timm's name for a key of `layout`; keys that no rule knows come back unchanged.

    >>> wanted = ["blocks.0.0.conv_pw.weight", "blocks.1.0.conv_pwl.weight"]
    >>> rename("efficientnet_lite_pytorch", "_blocks.1._bn0.bias", wanted)
    'blocks.1.0.bn1.bias'
    >>> rename("efficientnet_lite_pytorch", "_fc.bias", wanted)
    'classifier.bias'
    """
    if layout != "efficientnet_lite_pytorch":
        return key
    inside = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", key)
    if inside is None:
        module, _, leaf = key.partition(".")
        return f"{_OUTSIDE[module]}.{leaf}" if module in _OUTSIDE else key
    number, module, leaf = int(inside[1]), inside[2], inside[3]
    blocks = _blocks(tuple(wanted))
    if number >= len(blocks):
        return key
    prefix, expands = blocks[number]
    names = _EXPANDING if expands else _SEPARABLE
    return f"{prefix}.{names[module]}.{leaf}" if module in names else key


@cache
def _blocks(wanted: tuple[str, ...]) -> list[tuple[str, bool]]:
    """Every block of the model in order: its prefix, and whether it expands."""
    found = {tuple(map(int, m.groups())) for k in wanted if (m := _BLOCK.match(k))}
    prefixes = [f"blocks.{stage}.{index}" for stage, index in sorted(found)]
    return [(p, f"{p}.conv_pwl.weight" in wanted) for p in prefixes]
