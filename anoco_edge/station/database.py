"""station.db: users, sessions, tokens, reviews, pins and the audit, in SQLite.

The web process alone writes it. Reads have a connection of their own, so that none of them waits
for a commit.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from anoco_edge.errors import StorageError
from anoco_edge.station.jobs.part_tables import PART_TABLES

NAME = "station.db"
VERSION = 1
APPLICATION = 0x616E6F73  # "anos", in the header of the file
_SCHEMA = """
CREATE TABLE user (
    name TEXT PRIMARY KEY, role TEXT NOT NULL, password TEXT NOT NULL, pin TEXT,
    pin_failures INTEGER NOT NULL DEFAULT 0, made TEXT NOT NULL
) STRICT;
CREATE TABLE session (
    digest TEXT PRIMARY KEY, user TEXT NOT NULL REFERENCES user (name) ON DELETE CASCADE,
    via TEXT NOT NULL, opened REAL NOT NULL, seen REAL NOT NULL
) STRICT;
CREATE TABLE browser (
    digest TEXT PRIMARY KEY, label TEXT NOT NULL, made TEXT NOT NULL, made_by TEXT NOT NULL
) STRICT;
CREATE TABLE token (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, digest TEXT NOT NULL,
    owner TEXT NOT NULL REFERENCES user (name) ON DELETE CASCADE,
    made TEXT NOT NULL, expires REAL, used TEXT
) STRICT;
CREATE TABLE review (
    uid TEXT PRIMARY KEY, verdict TEXT NOT NULL CHECK (verdict IN ('good', 'defect', 'missed')),
    note TEXT NOT NULL, by TEXT NOT NULL, at TEXT NOT NULL
) STRICT;
CREATE INDEX review_verdict ON review (verdict);
CREATE TABLE pin (uid TEXT PRIMARY KEY, by TEXT NOT NULL, at TEXT NOT NULL) STRICT;
CREATE TABLE audit (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, user TEXT NOT NULL, via TEXT NOT NULL,
    action TEXT NOT NULL, subject TEXT NOT NULL, details TEXT NOT NULL, hash TEXT NOT NULL
) STRICT;
"""
_TABLES = {"user", "session", "browser", "token", "review", "pin", "audit"} | PART_TABLES.keys()


class Database:
    """An open station.db; any thread may use it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     database = Database(Path(folder))
    ...     with database.write() as data:
    ...         _ = data.execute("INSERT INTO pin VALUES ('a-1', 'mia', '2026-01-01')")
    ...     print(database.rows("SELECT uid, by FROM pin")[0]["by"])
    ...     database.close()
    mia
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path.touch(mode=0o600)
            self._writer = self._connect()
            self._prepare()
            self._reader = self._connect()
            self._reader.execute("PRAGMA query_only = ON")
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"cannot open {self.path}: {error}",
                hint="check the disk, or restore the file from a backup",
            ) from None
        self._write_lock, self._read_lock = threading.RLock(), threading.Lock()
        self._depth = 0

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction, or join the one that this thread has open."""
        with self._write_lock:
            if self._depth == 0:
                self._writer.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield self._writer
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._writer.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                self._commit()

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        """Return what a query finds in the last committed state."""
        with self._read_lock:
            return self._reader.execute(query, values).fetchall()

    def row(self, query: str, values: tuple[Any, ...] = ()) -> sqlite3.Row | None:
        """Return the first row that a query finds, or None."""
        return next(iter(self.rows(query, values)), None)

    def close(self) -> None:
        """Close both connections."""
        self._writer.close()
        self._reader.close()

    def _commit(self) -> None:
        try:
            self._writer.execute("COMMIT")
        except sqlite3.Error:
            self._writer.execute("ROLLBACK")
            raise

    def _connect(self) -> sqlite3.Connection:
        data = sqlite3.connect(
            self.path, timeout=5.0, isolation_level=None, check_same_thread=False
        )
        data.row_factory = sqlite3.Row
        return data

    def _prepare(self) -> None:
        data = self._writer
        check_version(data, self.path)
        data.execute("PRAGMA journal_mode = WAL")
        data.execute("PRAGMA synchronous = FULL")
        data.execute("PRAGMA foreign_keys = ON")


def check_version(data: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file; refuse one that is damaged or of a later version."""
    version = data.execute("PRAGMA user_version").fetchone()[0]
    with closing(data.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")) as found:
        tables = {row[0] for row in found}
    if version == 0 and not tables:
        data.executescript(
            f"BEGIN; PRAGMA application_id = {APPLICATION}; {_SCHEMA}"
            f"{''.join(PART_TABLES.values())}"
            f"PRAGMA user_version = {VERSION}; COMMIT;"
        )
        return
    if version > VERSION:
        raise StorageError(
            f"{path} has version {version}, this program knows {VERSION}",
            hint="update anoco-edge, or choose another folder",
        )
    if version != VERSION or not tables >= _TABLES:
        raise StorageError(
            f"{path} is not the data base of a station",
            hint="restore it from a backup, or move it away: users are then set up again",
        )
