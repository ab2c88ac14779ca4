"""How large the numbers inside a backbone become on good parts: the ranges that INT8 is cut to.

Percentiles of absolute values by onnxruntime.quantization's own histograms, which grow picture by
picture, so that memory stays that of one picture. Nearly the whole range is kept: a defect may
well excite a layer more than any good part does, and what is cut off can no longer be told apart.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import missing
from anoco_edge.scoring.onnx_session import open_session

METHOD = "percentile"
PERCENTILE = 99.999
ENOUGH = 32  # pictures; with fewer it is measured how much the ranges depend on which they are
_BINS = 2048

Ranges = Mapping[str, float]


@dataclass(frozen=True)
class Collected:
    """The largest absolute value that INT8 shall represent, by tensor.

    `halves` are the same from every other picture alone; None where there is only one.
    """

    whole: Ranges
    halves: tuple[Ranges, Ranges] | None


def collect_ranges(
    graph: Path,
    tensors: Sequence[str],
    pictures: Sequence[NDArray[np.uint8]],
    progress: Callable[[int], None] = lambda _: None,
) -> Collected:
    """Run `graph`, whose outputs include `tensors`, on every picture (prepared, uint8 HxWx3).

    `progress` is told how many pictures are done.
    """
    session = open_session(graph, "the graph to collect ranges from")
    source = session.get_inputs()[0].name
    split = len(pictures) > 1
    whole, halves = _collector(), (_collector(), _collector())
    for index, picture in enumerate(pictures):
        values = session.run(list(tensors), {source: picture[None]})
        found = dict(zip(tensors, values, strict=True))
        for collector in (whole, *(halves[index % 2 : index % 2 + 1] if split else ())):
            with _silent():
                collector.collect(found)
        progress(index + 1)
    first, second = (_ranges(half) if split else {} for half in halves)
    return Collected(_ranges(whole), (first, second) if split else None)


def _collector() -> Any:
    try:
        from onnxruntime.quantization.calibrate import HistogramCollector
    except ImportError as error:  # it needs onnx, which a device has not
        raise missing(error.name or "onnx", "export", "to collect INT8 ranges") from None
    return HistogramCollector(
        method=METHOD,
        symmetric=True,  # TensorRT knows no zero point
        num_bins=_BINS,
        num_quantized_bins=128,
        percentile=PERCENTILE,
        scenario="same",
    )


def _ranges(collector: Any) -> dict[str, float]:
    with _silent():
        found = collector.compute_collection_result()
    # A tensor of zeros alone has no range; any positive one represents it.
    return {name: float(max(-low, high)) or 1.0 for name, (low, high, *_) in found.items()}


def _silent() -> Any:
    """The histograms chat on stdout, which belongs to --json."""
    return contextlib.redirect_stdout(io.StringIO())
