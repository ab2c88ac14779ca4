"""The recorder: a thread that writes rows and pictures, off the path of the outputs.

Rows are never dropped: when too many wait, `has_room` is False and the station accepts no parts.
Pictures are dropped first and counted. Rows that wait are committed together every 100 ms.
"""

from __future__ import annotations

import io
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.errors import StorageError
from anoco_edge.line.core.effects import Say
from anoco_edge.line.store.database import NAME, open_database, set_aside
from anoco_edge.line.store.rows import PictureFile, Row, RowWriter
from anoco_edge.storage.atomic_files import write_atomic, writing

COMMIT_SECONDS = 0.1
RETRY_SECONDS = 1.0
PICTURES = "pictures"
_REFUSED = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    OverflowError,
)
"""What is wrong with a row and not with the data base."""


@dataclass(frozen=True)
class RecorderLoad:
    """How much waits, and what was dropped."""

    rows: int
    pictures: int
    dropped: int
    failure: str


@dataclass(frozen=True)
class _Picture:
    uid: str
    number: int
    pixels: NDArray[np.uint8]


class Recorder:
    """Writes what it is given into the folder of a station, until it is closed."""

    def __init__(
        self,
        folder: Path,
        writer: RowWriter,
        *,
        say: Callable[[str], None],
        most_rows: int = 10_000,
        most_pictures: int = 32,
        commit_seconds: float = COMMIT_SECONDS,
    ) -> None:
        self._folder, self._writer, self._say = folder, writer, say
        self._most_rows, self._most_pictures = most_rows, most_pictures
        self._commit_seconds = commit_seconds
        self._rows: deque[Row] = deque()
        self._pictures: deque[_Picture] = deque()
        self._dropped = 0
        self._failure = ""
        self._changed = threading.Condition()
        self._closing = False
        self._data: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    # ---- what other threads call; none of it waits for the disk

    def add(self, row: Row) -> bool:
        """Take a row; False says that there is no room for those of another part."""
        with self._changed:
            self._rows.append(row)
            self._changed.notify()
            return len(self._rows) < self._most_rows

    def add_picture(self, uid: str, number: int, pixels: NDArray[np.uint8]) -> bool:
        """Take the picture of a capture, which nobody may change any more; False if dropped."""
        with self._changed:
            if len(self._pictures) >= self._most_pictures:
                self._dropped += 1
                return False
            self._pictures.append(_Picture(uid, number, pixels))
            self._changed.notify()
            return True

    @property
    def load(self) -> RecorderLoad:
        """What waits, what was dropped, and why nothing can be written, if so."""
        with self._changed:
            return RecorderLoad(len(self._rows), len(self._pictures), self._dropped, self._failure)

    @property
    def has_room(self) -> bool:
        """Whether the rows of another part can be taken."""
        with self._changed:
            return len(self._rows) < self._most_rows

    def close(self, timeout: float = 10.0) -> int:
        """Write what waits and end; return the number of rows that could not be written."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)
        return self.load.rows

    # ---- the thread

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._rows or self._pictures or self._closing)
                if not self._pictures or self._failure:  # what comes meanwhile is committed with it
                    wait = RETRY_SECONDS if self._failure else self._commit_seconds
                    self._changed.wait_for(lambda: self._closing, wait)
                rows, closing = list(self._rows), self._closing
            written = self._commit(rows)
            with self._changed:
                for _ in range(written):
                    self._rows.popleft()
            self._write_pictures(time.monotonic() + self._commit_seconds)
            with self._changed:
                if closing and (self._failure or not (self._rows or self._pictures)):
                    break
        if self._data is not None:
            self._data.close()

    def _commit(self, rows: list[Row]) -> int:
        """Write rows in one transaction; return how many are done with, all or none."""
        if not rows:
            return 0
        try:
            self._write_rows(rows)
        except (
            sqlite3.OperationalError,
            StorageError,
        ) as error:  # a full disk, a lock: again later
            self._note_failure(str(error))
            return 0
        except _REFUSED as error:
            return self._commit_singly(rows, error)
        except sqlite3.DatabaseError as error:
            self._begin_again(error)
            return 0
        if self._failure:
            self._failure = ""
            self._say("the recorder writes again")
        return len(rows)

    def _write_rows(self, rows: list[Row]) -> None:
        data = self._database()
        with data:
            data.execute("BEGIN IMMEDIATE")
            for row in rows:
                self._writer.write(data, row)

    def _commit_singly(self, rows: list[Row], error: Exception) -> int:
        """Write all rows but those that the data base refuses, which no later try would change."""
        if len(rows) == 1:
            self._say(f"a row cannot be recorded: {error}: {rows[0]}")
            return 1
        done = 0
        while done < len(rows) and self._commit([rows[done]]):
            done += 1
        return done

    def _database(self) -> sqlite3.Connection:
        if self._data is None:
            self._data = open_database(self._folder, self._say)
        return self._data

    def _begin_again(self, error: sqlite3.DatabaseError) -> None:
        """Keep a data base aside that was damaged while it was open, and begin a new one."""
        if self._data is not None:
            self._data.close()
            self._data = None
        path = self._folder / NAME
        if not path.exists():
            self._note_failure(str(error))
            return
        aside = set_aside(path)
        self._say(f"{path} is damaged ({error}); it is kept as {aside.name}, and a new one begun")

    def _note_failure(self, why: str) -> None:
        if why != self._failure:
            self._failure = why
            self._say(f"the recorder cannot write: {why}")

    def _write_pictures(self, until: float) -> None:
        """Write pictures for a while; rows must not wait long."""
        while True:
            with self._changed:
                if not self._pictures:
                    return
                picture = self._pictures.popleft()
            self._write_picture(picture)
            if time.monotonic() >= until:
                return

    def _write_picture(self, picture: _Picture) -> None:
        """Write a picture without loss, so that its verdict can be computed again."""
        name = f"{PICTURES}/{picture.uid.rpartition('-')[0]}/{picture.uid}-{picture.number}.png"
        path = self._folder / name
        raw = io.BytesIO()
        Image.fromarray(picture.pixels).save(raw, "PNG", compress_level=1)
        data = raw.getvalue()
        try:
            with writing(str(path)):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, data)
        except StorageError as error:
            with self._changed:
                self._dropped += 1
            self.add(Say("warning", str(error)))
            return
        self.add(PictureFile(picture.uid, picture.number, name, len(data)))
