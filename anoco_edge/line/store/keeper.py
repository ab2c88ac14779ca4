"""A thread that sends the outbox and deletes old pictures; the line works without it."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from pathlib import Path

from anoco_edge.errors import AnocoError
from anoco_edge.line.store.database import open_database
from anoco_edge.line.store.outbox import BATCH, Outbox, Send
from anoco_edge.line.store.retention import Retention, RetentionRules
from anoco_edge.line.store.station_wishes import read_pins, wants_every_picture

LOOK_SECONDS = 0.5
BATCHES = 20  # of the outbox before the keeper looks after the rest
BATCH_SECONDS = 0.02  # between two batches, so that many messages do not keep the line waiting
CLEAN_SECONDS = 60.0
RETRY_SECONDS = 5.0  # after a data base that was locked, or a disk that was full


class StoreKeeper:
    """Keeps the store in order until it is closed."""

    def __init__(
        self,
        folder: Path,
        rules: RetentionRules,
        senders: Mapping[str, Send],
        *,
        say: Callable[[str], None],
    ) -> None:
        self._folder, self._senders, self._say = folder, dict(senders), say
        self._retention = Retention(folder, rules, pinned=lambda: read_pins(folder))
        self.waiting: dict[str, int] = {}
        """How many messages wait for each sink."""
        self.keeps_every_picture = False
        """Whether the station asks for the pictures of all parts, read twice a second."""
        self._held = 0
        """Pictures that look too old by a clock that is not trusted yet."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="store keeper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout: float = 5.0) -> None:
        """End the thread."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _work(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            try:
                with closing(open_database(self._folder, self._say)) as data:
                    self._keep(data)
            except (AnocoError, sqlite3.Error, OSError) as error:
                self._say(f"warning: the store cannot be kept in order: {error}")
                self._closing.wait(RETRY_SECONDS)

    def _keep(self, data: sqlite3.Connection) -> None:
        boxes = {name: Outbox(data, name, send) for name, send in self._senders.items()}
        next_cleaning = 0.0
        said: dict[str, str] = {}
        while not self._closing.wait(LOOK_SECONDS):
            self._drain(boxes.values())
            now = time.monotonic()
            for name, box in boxes.items():
                if box.last_error and box.last_error != said.get(name):
                    self._say(f"warning: {box.last_error}")
                said[name] = box.last_error
            self.keeps_every_picture = wants_every_picture(self._folder)
            self.waiting = {f"outbox {name}": box.waiting() for name, box in boxes.items()}
            if now >= next_cleaning:
                next_cleaning = now + CLEAN_SECONDS
                self._clean(data)

    def _drain(self, boxes: Collection[Outbox]) -> None:
        for _ in range(BATCHES):
            sent = [box.drain(time.monotonic()) for box in boxes]
            if BATCH not in sent or self._closing.wait(BATCH_SECONDS):
                return

    def _clean(self, data: sqlite3.Connection) -> None:
        done = self._retention.clean(data)
        if not done.enough:
            self._say("warning: pinned pictures alone exceed the limits of [store]")
        if done.held and not self._held:
            self._say(
                f"warning: by the clock {done.held} pictures are older than [store] days, and no "
                "part was recorded since: they are kept for a day, in case the clock is wrong"
            )
        self._held = done.held
