"""timm's EfficientNets: a stem and then stages of blocks; a tap is the end of a stage."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from anoco_edge_export.families import StateDict, Tensor, cnn

# efficientnet_lite_pytorch numbers all blocks in one sequence and norms from 0; timm groups blocks
# by stage and numbers norms from 1. The first block does not expand, so it has one norm less.
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


def official(model: Any, taps: Sequence[str], norm: bool) -> Any:
    """Return the stem and the stages up to the last tap; the head never runs."""
    stages = {f"blocks.{i}": stage for i, stage in enumerate(model.blocks)}
    return cnn.official((model.conv_stem, model.bn1), stages, taps)


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


def draw(state: StateDict, generator: Any) -> None:
    """Redraw as for every CNN."""
    cnn.draw(state, generator)


def convert(layout: str, state: Mapping[str, Tensor], wanted: Sequence[str]) -> StateDict:
    """Return the tensors of a file in `layout` under timm's names.

    >>> wanted = ["blocks.0.0.conv_pw.weight", "blocks.1.0.conv_pwl.weight"]
    >>> convert("efficientnet_lite_pytorch", {"_blocks.1._bn0.bias": 1, "_fc.bias": 2}, wanted)
    {'blocks.1.0.bn1.bias': 1, 'classifier.bias': 2}
    """
    if layout != "efficientnet_lite_pytorch":
        return dict(state)
    blocks = _blocks(tuple(wanted))
    return {_rename(key, blocks): value for key, value in state.items()}


def _rename(key: str, blocks: Sequence[tuple[str, bool]]) -> str:
    inside = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", key)
    if inside is None:
        module, _, leaf = key.partition(".")
        return f"{_OUTSIDE[module]}.{leaf}" if module in _OUTSIDE else key
    number, module, leaf = int(inside[1]), inside[2], inside[3]
    if number >= len(blocks):
        return key
    prefix, expands = blocks[number]
    names = _EXPANDING if expands else _SEPARABLE
    return f"{prefix}.{names[module]}.{leaf}" if module in names else key


def _blocks(wanted: tuple[str, ...]) -> list[tuple[str, bool]]:
    """Return for every block of the model, in order, its prefix and whether it expands."""
    found = {tuple(map(int, m.groups())) for k in wanted if (m := _BLOCK.match(k))}
    prefixes = [f"blocks.{stage}.{index}" for stage, index in sorted(found)]
    return [(p, f"{p}.conv_pwl.weight" in wanted) for p in prefixes]
