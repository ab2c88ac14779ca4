"""Measures how large activations become on good parts: the ranges that INT8 represents.

A range is a percentile of absolute values. The histograms of onnxruntime.quantization grow picture
by picture, so that memory holds one picture at a time. The percentile keeps nearly the whole range,
because a defect may excite a layer more than any good part does, and values beyond the range cannot
be told apart any more.
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
_BINS = 2048

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
    return ActivationRanges(_ranges(whole), (first, second) if split else None)


def _collector() -> Any:
    try:
        from onnxruntime.quantization.calibrate import HistogramCollector
    except ImportError as error:  # it needs onnx, which is not installed on a device
        raise missing(error.name or "onnx", "export", "to collect INT8 ranges") from None
    return HistogramCollector(
        method=METHOD,
        symmetric=True,  # TensorRT supports no zero point
        num_bins=_BINS,
        num_quantized_bins=128,
        percentile=PERCENTILE,
        scenario="same",
    )


def _ranges(collector: Any) -> dict[str, float]:
    with _silent():
        found = collector.compute_collection_result()
    # A tensor of zeros has no range; any positive number represents it.
    return {name: float(max(-low, high)) or 1.0 for name, (low, high, *_) in found.items()}


def _silent() -> Any:
    """Keep the histograms from printing to stdout, which belongs to the caller."""
    return contextlib.redirect_stdout(io.StringIO())
