"""A camera without hardware: rendered parts or pictures of a folder, one for each request.

It stamps a frame when it is asked for one and counts frames as a real camera does, so that pairing,
deadlines and outputs are those of a real line.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from anoco_edge.demo.line import make_parts
from anoco_edge.errors import AnocoError
from anoco_edge.images.decode import read_picture
from anoco_edge.line.cameras.actor import PROGRESS_SECONDS, CameraOutlet
from anoco_edge.line.cameras.kinds import FOLDER, RENDERED
from anoco_edge.line.core.events import CameraDown, CameraProgress, CameraUp
from anoco_edge.line.frame_memory import Pixels
from anoco_edge.sources.files import find_pictures

GOOD, DEFECTIVE = 8, 4  # parts that are rendered, and shown again and again


class SimulatedCamera:
    """A thread that answers each request with the next picture; `counter_bits` are those of the
    core's `CameraSettings`."""

    def __init__(
        self, load: Callable[[], Sequence[Pixels]], outlet: CameraOutlet, counter_bits: int = 0
    ) -> None:
        self.name, self._load = outlet.camera, load
        self._period = (1 << counter_bits) - 1
        self._outlet, self._post = outlet, outlet.post
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"camera {self.name}", daemon=True)

    def start(self) -> None:
        """Load the pictures and connect, in a thread of its own."""
        self._thread.start()

    def take(self) -> None:
        """Ask for one frame."""
        self._requests.put(True)

    def close(self) -> None:
        """End the thread."""
        self._requests.put(False)

    def _work(self) -> None:
        try:
            pictures = self._load()
        except AnocoError as error:
            self._post(CameraDown(self.name, str(error)))
            return
        self._post(CameraUp(self.name))
        counter = 0
        while True:
            try:
                if not self._requests.get(timeout=PROGRESS_SECONDS):
                    return
            except queue.Empty:
                self._post(CameraProgress(self.name))
                continue
            stamp = counter % self._period if self._period else counter
            self._deliver(pictures[counter % len(pictures)], stamp + 1)
            counter += 1

    def _deliver(self, pixels: Pixels, counter: int) -> None:
        exposed = time.monotonic_ns()
        self._outlet.deliver(pixels, counter, exposed, time.monotonic_ns())


def picture_loader(source: str, base: Path) -> Callable[[], Sequence[Pixels]]:
    """Return what loads all pictures of a simulated source."""
    if source.startswith(RENDERED):
        material = source.removeprefix(RENDERED)
        return lambda: [part.rgb for part in make_parts(material, GOOD, DEFECTIVE)[1]]
    folder = str(base / source.removeprefix(FOLDER))
    return lambda: [read_picture(path) for path in find_pictures([folder], "add pictures")]
