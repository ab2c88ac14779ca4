"""Memory for frames that the line and its judge share, so that no frame is copied for judging.

The memory has no name: the judge gets its handle, and it is gone when both have ended.
"""

from __future__ import annotations

import mmap
import os
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import PictureError

Pixels = NDArray[np.uint8]
SLOT_BYTES = 64 << 20  # a frame of 20 megapixels; what no frame fills takes no memory


@dataclass(frozen=True)
class Slot:
    """Where a frame lies: the number of its slot, and its height and width."""

    number: int
    height: int
    width: int


class FrameMemory:
    """Slots for frames. One is taken by `put` and free again when everybody has let it go.

    >>> memory = FrameMemory(slots=1)
    >>> slot = memory.put(np.full((2, 2, 3), 7, np.uint8))
    >>> int(memory.view(slot).sum()), memory.put(np.zeros((2, 2, 3), np.uint8)) is None
    (84, True)
    >>> memory.let_go(slot); memory.put(np.zeros((2, 2, 3), np.uint8)) is None
    False
    """

    def __init__(self, slots: int = 8, slot_bytes: int = SLOT_BYTES) -> None:
        self.slots, self.slot_bytes = slots, slot_bytes
        self.handle = os.memfd_create("anoco-frames")
        os.ftruncate(self.handle, slots * slot_bytes)
        self._map = mmap.mmap(self.handle, slots * slot_bytes)
        self._users = [0] * slots
        self._lock = threading.Lock()

    def put(self, rgb: Pixels) -> Slot | None:
        """Copy a frame into a free slot; None where all are taken."""
        if rgb.nbytes > self.slot_bytes:
            raise PictureError(
                f"a frame of {rgb.shape[1]} x {rgb.shape[0]} does not fit into the shared memory",
                hint="let the camera deliver smaller frames",
            )
        with self._lock:
            number = next((n for n, users in enumerate(self._users) if users == 0), None)
            if number is None:
                return None
            self._users[number] = 1
        slot = Slot(number, rgb.shape[0], rgb.shape[1])
        self._pixels(slot)[:] = rgb
        return slot

    def hold(self, slot: Slot) -> None:
        """Note another user of a frame."""
        with self._lock:
            self._users[slot.number] += 1

    def let_go(self, slot: Slot) -> None:
        """Note that a user needs a frame no more."""
        with self._lock:
            self._users[slot.number] -= 1

    def view(self, slot: Slot) -> Pixels:
        """Return a frame, which may be read until it is let go."""
        pixels = self._pixels(slot)
        pixels.flags.writeable = False
        return pixels

    @property
    def taken(self) -> int:
        """How many slots hold frames that somebody needs."""
        with self._lock:
            return sum(users > 0 for users in self._users)

    def close(self) -> None:
        """Give the handle back; the memory goes with its last user."""
        os.close(self.handle)

    def _pixels(self, slot: Slot) -> Pixels:
        return _frame(self._map, slot, self.slot_bytes)


class SharedFrames:
    """The judge's side of the memory: it can only read."""

    def __init__(self, handle: int, slots: int, slot_bytes: int) -> None:
        self._map = mmap.mmap(handle, slots * slot_bytes, prot=mmap.PROT_READ)
        self._slot_bytes = slot_bytes

    def view(self, slot: Slot) -> Pixels:
        """Return a frame."""
        return _frame(self._map, slot, self._slot_bytes)


def _frame(memory: mmap.mmap, slot: Slot, slot_bytes: int) -> Pixels:
    count = slot.height * slot.width * 3
    start = slot.number * slot_bytes
    flat = np.frombuffer(memory, np.uint8, count, start)
    return flat.reshape(slot.height, slot.width, 3)
