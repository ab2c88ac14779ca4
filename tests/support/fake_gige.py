"""Aravis' fake GigE Vision camera on the loopback, and what a camera of the line says about it."""

from __future__ import annotations

import fcntl
import queue
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from anoco_edge.errors import SourceError
from anoco_edge.line.cameras.actor import CameraOutlet, Frames
from anoco_edge.line.cameras.aravis_device import AravisDevice
from anoco_edge.line.core.events import Event
from anoco_edge.line.frame_memory import FrameMemory

PROGRAM = "arv-fake-gv-camera-0.8"
ADDRESS = "127.0.0.1"
PATIENCE = 60.0
Kind = TypeVar("Kind")

needs_fake_camera = pytest.mark.skipif(
    shutil.which(PROGRAM) is None, reason=f"there is no {PROGRAM} (Debian: aravis-tools)"
)


@contextmanager
def only_one() -> Iterator[None]:
    """Wait until no other test uses the port of GigE Vision, which cannot be chosen."""
    with Path(tempfile.gettempdir(), "anoco-fake-gige.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def fake_camera(*options: str, address: str = ADDRESS) -> Iterator[subprocess.Popen[bytes]]:
    """Run a fake camera that answers."""
    process = subprocess.Popen(
        [PROGRAM, "-i", address, "-s", "GV7", *options], stdout=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                AravisDevice(address).close()
                break
            except SourceError:
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


class Listener:
    """Takes what a camera delivers, in place of the core."""

    def __init__(self, name: str = "top") -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.frames: Frames = {}
        self.memory = FrameMemory(slots=4, slot_bytes=1 << 20)
        self.notes: list[str] = []
        self.outlet = CameraOutlet(
            name, self.memory, self.frames, self.events.put, self.notes.append
        )

    def next(self, kind: type[Kind]) -> Kind:
        """Wait for the next event of a kind."""
        end = time.monotonic() + PATIENCE
        while True:
            event = self.events.get(timeout=max(end - time.monotonic(), 0.01))
            if isinstance(event, kind):
                return event

    def let_go(self) -> None:
        """Free the memory of all frames."""
        while self.frames:
            self.memory.let_go(self.frames.popitem()[1])
