"""The options of an export, all in one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.images.contract import Fit, PixelType
from anoco_edge_export.range_collector import RangeCollector
from anoco_edge_export.recipe import Precision, TapNorm

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class ExportOptions:
    """How a backbone is exported. None, or nothing, stands for what the recipe says.

    >>> ExportOptions(size=(384, 384), weights="random:0").precision
    'fp32'
    """

    size: tuple[int, int] | None = None
    """Width and height of the input, in pixels."""
    layers: Sequence[int] | None = None
    """The layers whose ends are tapped, counted from 1."""
    tap_norm: TapNorm | None = None
    """The norm that is applied to each tap."""
    weights: str | None = None
    """A weights file, or `random:SEED`; the recipe names a package or a repository of the hub."""
    precision: Precision = "fp32"
    islands: Sequence[str] | None = None
    """The parts of an FP16 or BF16 graph that stay FP32; see `fp32_islands.ISLANDS`."""
    allow_unfused: bool = False
    """Whether a graph is exported whose attention TensorRT does not fuse."""
    fit: Fit = "stretch"
    """How a picture is brought to the input size."""
    pixels: PixelType = "uint8"
    """What the graph takes: bytes, or the float32 NCHW from 0 to 255 that DeepStream gives."""
    pictures: Sequence[Picture] = ()
    """RGB pictures for the comparison with torch; synthetic ones are added where they are few."""
    prompts: Sequence[str] = ()
    """The objects that prompts are written about, where the backbone has a text side."""
    calibration: RangeCollector | None = None
    """Pictures of good parts, for the ranges of INT8."""
