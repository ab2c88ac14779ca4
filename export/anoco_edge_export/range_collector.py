"""The interface by which an INT8 export gets the ranges of activations.

`anoco_edge_calibration.int8.CalibrationSet` implements `RangeCollector`. The export does not import
it; the caller passes one in, so that neither package depends on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anoco_edge.teaching import NewPicture

Ranges = Mapping[str, float]
"""By tensor, the largest absolute value that INT8 represents."""


class RangeTable(Protocol):
    """The ranges of tensors over all calibration pictures, and over either half of them."""

    @property
    def whole(self) -> Ranges:
        """The ranges over all pictures."""

    @property
    def halves(self) -> tuple[Ranges, Ranges] | None:
        """The ranges over every other picture; None where there is only one picture."""


class RangeCollector(Protocol):
    """Pictures of good parts, and the method that turns activations on them into ranges."""

    @property
    def pictures(self) -> Sequence[NewPicture]:
        """The pictures of good parts."""

    @property
    def method(self) -> str:
        """The method in words, for the report."""

    @property
    def enough(self) -> int:
        """The number of pictures from which on the ranges are trusted without a second look."""

    def collect(
        self,
        graph: Path,
        tensors: Sequence[str],
        prepared: Sequence[NDArray[np.uint8]],
        progress: Callable[[int], None],
    ) -> RangeTable:
        """Run `graph`, whose outputs include `tensors`, on the prepared pictures (uint8 HxWx3).

        `progress` is called with the number of pictures that are done.
        """
