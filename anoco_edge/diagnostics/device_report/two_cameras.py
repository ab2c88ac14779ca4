"""Two cameras inspect at the same time while the product is changed again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from anoco_edge.detector import Detector
from anoco_edge.diagnostics.bench.statistics import LatencySummary, summarize
from anoco_edge.errors import AnocoError

CAMERAS = 2


class CameraFigures(BaseModel):
    """Times of frames in milliseconds while `changes` products were opened beside them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cameras: int = CAMERAS
    frames: int
    changes: int
    change: LatencySummary
    total: LatencySummary
    failed: tuple[str, ...] = ()
    """What was wrong with frames that could not be inspected."""


class _Line:
    """The detector that all cameras use at this moment, and what they measured."""

    def __init__(self, detector: Detector, pictures: Sequence[Path], frames: int) -> None:
        self.detector = detector
        self._pictures, self._frames = pictures, frames
        self.times: list[float] = []
        self.failed: list[str] = []
        self.changed = threading.Event()

    def watch(self, camera: int) -> None:
        """Inspect as one camera does, each frame with the product of that moment.

        The last frame waits for the first change, so that there is a frame after a change however
        fast the frames are.
        """
        for frame in range(self._frames):
            if frame == self._frames - 1:
                self.changed.wait()
            path = self._pictures[(camera + frame) % len(self._pictures)]
            start = time.perf_counter()
            try:
                self.detector.inspect(path)
            except AnocoError as error:
                self.failed.append(str(error))
            self.times.append((time.perf_counter() - start) * 1000)


def time_two_cameras(
    open_detector: Callable[[str], Detector],
    products: Sequence[str],
    pictures: Sequence[Path],
    frames: int,
) -> CameraFigures:
    """Inspect `frames` pictures with each camera and open products one after the other meanwhile.

    Where there is one product only, it is opened again each time: its bank, workspace and engine
    are then new ones as well.
    """
    line = _Line(open_detector(products[0]), pictures, frames)
    line.detector.inspect(pictures[0])
    threads = [threading.Thread(target=line.watch, args=(k,)) for k in range(CAMERAS)]
    for thread in threads:
        thread.start()
    changes: list[float] = []
    try:
        while any(thread.is_alive() for thread in threads):
            start = time.perf_counter()
            line.detector = open_detector(products[(len(changes) + 1) % len(products)])
            changes.append((time.perf_counter() - start) * 1000)
            line.changed.set()
    finally:
        line.changed.set()
        for thread in threads:
            thread.join()
    return CameraFigures(
        frames=len(line.times),
        changes=len(changes),
        change=summarize(changes),
        total=summarize(line.times),
        failed=tuple(dict.fromkeys(line.failed)),
    )
