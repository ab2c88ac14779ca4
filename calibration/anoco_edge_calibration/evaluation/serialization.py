"""What a unit of an evaluation found as JSON, so that it can wait on a disk for the others."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anoco_edge_calibration.evaluation.gallery import Shown, Worst
from anoco_edge_calibration.evaluation.tables import Row
from anoco_edge_calibration.evaluation.unit import Measured, PictureScore, Problem, Unit


def pack_measured(found: Measured) -> dict[str, Any]:
    """Everything but the unit, which the plan knows."""
    return {
        "rows": [asdict(row) for row in found.rows],
        "pictures": [list(vars(score).values()) for score in found.pictures],
        "problems": [asdict(problem) for problem in found.problems],
        "tested": {str(path): pixels for path, pixels in found.tested.items()},
        "taught": sorted(found.taught),
        "doubled": found.doubled,
    }


def unpack_measured(unit: Unit, packed: dict[str, Any]) -> Measured:
    """The same again, number by number."""
    return Measured(
        unit,
        [Row(**row) for row in packed["rows"]],
        [PictureScore(*values) for values in packed["pictures"]],
        [Problem(**problem) for problem in packed["problems"]],
        {Path(path): pixels for path, pixels in packed["tested"].items()},
        set(packed["taught"]),
        packed["doubled"],
    )


def pack_worst(worst: Worst) -> dict[str, Any]:
    """With its pictures as text."""
    packed = asdict(worst)
    for kind in ("misses", "alarms"):
        for shown in packed[kind]:
            if isinstance(shown["drawn"], bytes):
                shown["drawn"] = {"jpeg": b64encode(shown["drawn"]).decode()}
    return packed


def unpack_worst(packed: dict[str, Any]) -> Worst:
    """The same again, byte by byte."""
    lists = {
        kind: [Shown(**{**shown, "drawn": _drawn(shown["drawn"])}) for shown in packed[kind]]
        for kind in ("misses", "alarms")
    }
    return Worst(**{**packed, **lists})


def _drawn(value: Any) -> bytes | str:
    return b64decode(value["jpeg"]) if isinstance(value, dict) else str(value)
