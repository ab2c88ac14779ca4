"""The pictures of good parts that the ranges of an INT8 backbone come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import UsageError
from anoco_edge.teaching import NewPicture
from anoco_edge_calibration.int8.ranges import (
    METHOD,
    ActivationRanges,
    collect_ranges,
)

ENOUGH = 32  # with fewer pictures the export measures how much the ranges depend on the choice


@dataclass(frozen=True)
class CalibrationSet:
    """Pictures of good parts, and how ranges are taken from them.

    Pass it as the option `calibration` of `anoco_edge_export.ExportOptions`.
    """

    pictures: tuple[NewPicture, ...]
    method: str = METHOD
    enough: int = ENOUGH

    def __post_init__(self) -> None:
        if not self.pictures:
            raise UsageError(
                "a calibration set has no pictures", hint="give pictures of good parts"
            )

    @classmethod
    def from_files(cls, paths: Iterable[str | Path]) -> CalibrationSet:
        """Read the pictures of these files."""
        return cls(tuple(NewPicture.from_file(path) for path in paths))

    def collect(
        self,
        graph: Path,
        tensors: Sequence[str],
        prepared: Sequence[NDArray[np.uint8]],
        progress: Callable[[int], None] = lambda _: None,
    ) -> ActivationRanges:
        """Return the ranges of `tensors` when `graph` runs on the prepared pictures."""
        return collect_ranges(graph, tensors, prepared, progress)
