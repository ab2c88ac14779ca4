"""Measures how large activations become on good parts: the ranges that INT8 represents.

A range is the largest absolute value. A percentile would cut off the few outlier channels that a
trained transformer has in a few patches, and later blocks depend on those: it costs more than the
coarser steps of a wider range. A defect may excite a layer more than any good part does, too, and
values beyond the range cannot be told apart any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anoco_edge.scoring.onnx_session import open_session

METHOD = "largest absolute values"

Ranges = Mapping[str, float]


@dataclass(frozen=True)
class ActivationRanges:
    """By tensor, the largest absolute value that INT8 represents.

    `halves` holds the ranges from the even and from the odd pictures alone; it is None where there
    is only one picture.
    """

    whole: Ranges
    halves: tuple[Ranges, Ranges] | None


def collect_ranges(
    graph: Path,
    tensors: Sequence[str],
    pictures: Sequence[NDArray[np.uint8]],
    progress: Callable[[int], None] = lambda _: None,
) -> ActivationRanges:
    """Run `graph`, whose outputs include `tensors`, on every picture (prepared, uint8 HxWx3).

    `progress` is called with the number of pictures that are done.
    """
    session = open_session(graph, "the graph to collect ranges from")
    source = session.get_inputs()[0].name
    peaks = np.empty((len(pictures), len(tensors)))
    for index, picture in enumerate(pictures):
        values = session.run(list(tensors), {source: picture[None]})
        peaks[index] = [np.abs(value).max(initial=0.0) for value in values]
        progress(index + 1)

    def largest(of: NDArray[np.float64]) -> Ranges:
        # A tensor of zeros has no range; any positive number represents it.
        return {name: float(p) or 1.0 for name, p in zip(tensors, of.max(axis=0), strict=True)}

    split = len(pictures) > 1
    return ActivationRanges(
        largest(peaks), (largest(peaks[::2]), largest(peaks[1::2])) if split else None
    )
