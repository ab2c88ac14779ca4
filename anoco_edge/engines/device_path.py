"""The self-test of the path that a picture takes on a GPU, beside that of its features.

Pixels must arrive there as they left the processor, and a captured graph must compute what the plan
computes when it is enqueued, bit for bit. `device_scoring` compares what follows, the energies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import ParityError
from anoco_edge.scoring.types import Floats

PIXELS, GRAPH = "pixels on the device", "captured graph"


@dataclass(frozen=True)
class DeviceTrace:
    """What one run left on the device; `launched` is None if the plan was not captured.

    `sent` and `arrived` are the bytes of the pixels, before and after they were there.
    """

    sent: NDArray[np.uint8]
    arrived: NDArray[np.uint8]
    plain: Floats
    launched: Floats | None


@runtime_checkable
class TraceableEngine(Protocol):
    """An engine that can run a picture plainly and as a graph, and read all of it back."""

    def trace(self, pixels: NDArray[np.uint8]) -> DeviceTrace: ...


def check_trace(name: str, trace: DeviceTrace) -> tuple[str, ...]:
    """Compare a run on the device with the host's pixels and with its graph; names what was done.

    >>> pixels, features = np.zeros(12, np.uint8), np.ones((1, 1, 4), np.float32)
    >>> check_trace("tensorrt", DeviceTrace(pixels, pixels, features, features))
    ('pixels on the device', 'captured graph')
    """
    if not np.array_equal(trace.arrived, trace.sent):
        wrong = int((trace.arrived != trace.sent).sum())
        raise ParityError(
            f"{name} finds other pixels on the device than the processor sent: {wrong} of "
            f"{trace.sent.size} bytes differ",
            hint="do not inspect with this machine: check its memory and its driver",
        )
    if trace.launched is None:
        return (PIXELS,)
    if trace.plain.tobytes() != trace.launched.tobytes():
        wrong = int((trace.plain != trace.launched).sum())
        raise ParityError(
            f"{name} computes other features as a CUDA graph than without one: {wrong} of "
            f"{trace.plain.size} numbers differ",
            hint="do not inspect with this combination: update the driver, or use another engine",
        )
    return (PIXELS, GRAPH)
