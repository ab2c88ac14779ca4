"""The protocol of sinks, which receive the rows of a run.

The package `sinks` holds those of anoco-edge and the table by which other packages add theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from anoco_edge.detector import Detector
from anoco_edge.images.frame import Frame
from anoco_edge.pipeline.base import ProductSnapshot
from anoco_edge.results.overlay import Overlay
from anoco_edge.results.rows import Row
from anoco_edge.results.summary import RunSummary


@dataclass(frozen=True)
class RunInfo:
    """The facts about a run that a sink may need before its first row.

    `live` says that frames come from a camera or a stream, so that the run has no known end.
    """

    title: str = ""
    product: str = ""
    threshold: float | None = None
    threshold_kind: str = "none"
    live: bool = False

    @staticmethod
    def of(snapshot: Detector | ProductSnapshot, title: str, *, live: bool) -> RunInfo:
        """Describe a run that inspects with this state of a product."""
        return RunInfo(
            title, snapshot.product.name, snapshot.threshold, snapshot.threshold_kind, live
        )


class Sink(Protocol):
    """Receives every row of a run, one after the other, and the summary at the end.

    A sink that raises StorageError ends the run; the rows that were written before are kept. The
    sinks of a run receive a row in their order and the summary in the reverse order.
    """

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> Row | None:
        """Receive the row of a frame.

        `overlay` is None where the picture could not be inspected. Otherwise its method `image`
        draws the overlay when it is first called, so a sink that needs none costs no drawing.

        A sink that adds to the row, such as the place where it kept the picture, returns the new
        row, and the sinks after it receive that one. All others return None.
        """
        ...

    def finish(self, summary: RunSummary) -> None:
        """Receive the summary after the last row, and close what is open."""
        ...
