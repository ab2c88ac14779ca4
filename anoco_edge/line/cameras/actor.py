"""What every camera of a line has in common: where its frames go and what it tells the core."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from anoco_edge.errors import AnocoError
from anoco_edge.line.core.effects import FrameKey
from anoco_edge.line.core.events import CameraDown, CameraProgress, Event, Picture
from anoco_edge.line.frame_memory import FrameMemory, Pixels, Slot

PROGRESS_SECONDS = 0.2
RETRY_SECONDS = 1.0

Frames = dict[FrameKey, Slot]


class LineCamera(Protocol):
    """A camera with threads of its own. It posts `CameraUp`, `CameraDown`, `Picture` and, as often
    as the camera itself has answered, `CameraProgress`."""

    def start(self) -> None:
        """Connect, and connect again whenever the camera is lost."""

    def take(self) -> None:
        """Ask for one frame; returns at once."""

    def close(self) -> None:
        """End the threads."""


@dataclass(frozen=True)
class CameraOutlet:
    """Where a camera delivers to: shared memory, the table of frames, the queue of the core, and
    the log (`note`)."""

    camera: str
    memory: FrameMemory
    frames: Frames
    post: Callable[[Event], None]
    note: Callable[[str], None] = lambda _: None
    show: Callable[[str, Slot], None] = lambda _camera, _slot: None
    """Gets each frame before the core does, for people."""
    simulated: bool = False
    """Whether the frames are stored pictures in place of the camera's."""

    def deliver(self, pixels: Pixels, counter: int, earliest: int, latest: int) -> None:
        """Give a whole frame to the core; like a camera, lose it where no memory is free.

        The core hears of a number that a camera gives twice, and its first frame stays.
        """
        slot = self.memory.put(pixels)
        if slot is None:
            self.post(CameraProgress(self.camera))
            return
        if self.frames.setdefault(FrameKey(self.camera, counter, self.simulated), slot) is slot:
            self.show(self.camera, slot)
        else:
            self.memory.let_go(slot)
        self.post(Picture(self.camera, counter, earliest, latest, simulated=self.simulated))


class Reconnection:
    """Runs a camera until it is closed: connects, and after a loss says why and tries again."""

    def __init__(self, outlet: CameraOutlet, closing: threading.Event) -> None:
        self._outlet, self._closing = outlet, closing
        self._said: str | None = None

    def run(self, session: Callable[[], None]) -> None:
        """Call `session` again and again; it returns or raises when the camera is lost."""
        while not self._closing.is_set():
            began = time.monotonic()
            why = "it was disconnected"
            try:
                session()
            except AnocoError as error:
                why = str(error)
            if self._closing.is_set():
                return
            lasted = time.monotonic() - began > RETRY_SECONDS
            if why != self._said or lasted:  # a camera that is not there is not news each second
                self._said = why
                self._outlet.post(CameraDown(self._outlet.camera, why))
            self._closing.wait(RETRY_SECONDS)
