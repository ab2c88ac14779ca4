"""line.db: every part, capture and event of a station, in SQLite.

Commits are durable (WAL with synchronous=FULL: NORMAL loses the last commits when the power fails)
and are made by the recorder, off the path of the outputs. A data base that is damaged is kept aside
and a new one is begun, because a station must be able to work; the log says so.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path

from anoco_edge.errors import StorageError
from anoco_edge.line.core.status import Counters

NAME = "line.db"
LOCK = "line.lock"
VERSION = 2
APPLICATION = 0x616E6F63  # "anoc", in the header of the file
_SCHEMA = """
CREATE TABLE part (
    uid TEXT PRIMARY KEY, seq INTEGER NOT NULL, part_code TEXT NOT NULL, client TEXT NOT NULL,
    accepted INTEGER NOT NULL, at TEXT NOT NULL, trigger_ns INTEGER NOT NULL, decided_ns INTEGER,
    verdict TEXT, reason INTEGER, ratio REAL, product INTEGER, generation INTEGER, checksum INTEGER,
    acquire_ms INTEGER, total_ms INTEGER, reserve_ms INTEGER, simulated INTEGER,
    config TEXT NOT NULL
) STRICT;
CREATE INDEX part_pending ON part (uid) WHERE verdict IS NULL;
CREATE TABLE capture (
    uid TEXT NOT NULL REFERENCES part (uid), number INTEGER NOT NULL, camera TEXT NOT NULL,
    counter INTEGER, exposed_from INTEGER, exposed_to INTEGER, verdict TEXT, reason INTEGER,
    ratio REAL, bundle TEXT, bundle_sha256 TEXT, product TEXT, generation INTEGER,
    picture TEXT, bytes INTEGER, PRIMARY KEY (uid, number)
) STRICT;
CREATE INDEX capture_picture ON capture (picture) WHERE picture IS NOT NULL;
CREATE TABLE late (
    id INTEGER PRIMARY KEY, uid TEXT NOT NULL, number INTEGER NOT NULL, verdict TEXT NOT NULL,
    ratio REAL NOT NULL, received_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY, sink TEXT NOT NULL, uid TEXT NOT NULL, body TEXT NOT NULL,
    sent INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, UNIQUE (sink, uid)
) STRICT;
CREATE INDEX outbox_unsent ON outbox (sink, id) WHERE sent = 0;
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE io_event (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, level TEXT NOT NULL, text TEXT NOT NULL
) STRICT;
CREATE TABLE config (
    revision TEXT PRIMARY KEY, at TEXT NOT NULL, document TEXT NOT NULL
) STRICT;
"""
# What the history searches by. Each index but the two summaries ends in the time, so that a page of
# results is read in its order; the summaries hold all that counts and charts need, without the row.
_INDICES = """
CREATE INDEX part_summary ON part (at, verdict, product, accepted, ratio);
CREATE INDEX part_product ON part (product, at, verdict, accepted, ratio, generation);
CREATE INDEX part_verdict ON part (verdict, at);
CREATE INDEX part_reason ON part (reason, at);
CREATE INDEX part_code ON part (part_code, at);
CREATE INDEX part_seq ON part (seq, at);
CREATE INDEX late_uid ON late (uid);
"""
_MIGRATIONS = {1: f"DROP INDEX part_at; {_INDICES}"}
"""The statements that turn a data base of a version into one of the next."""
_TABLES = {"part", "capture", "late", "outbox", "counter", "io_event", "config"}
_COUNTERS = ("triggers", "good", "fail", "no_verdict", "missed")

Say = Callable[[str], None]


class StationLock:
    """The right of one process to write into the folder of a station, until it ends."""

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise StorageError(
                f"another station works in {folder}", hint="stop it, or choose another folder"
            ) from None

    def close(self) -> None:
        """Let another process work in the folder."""
        os.close(self._handle)


def wall_time() -> str:
    """Return the time of day in UTC, to the millisecond, as text that sorts."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def open_database(folder: Path, say: Say) -> sqlite3.Connection:
    """Open the data base of a station, or begin a new one.

    A damaged one is renamed to line.db.damaged-N, and `say` gets a line about it. One of a later
    version of anoco-edge is a StorageError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = open_database(Path(folder), print)
    ...     print(read_counters(data).triggers)
    ...     data.close()
    0
    """
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return _open(path, say)
        except (sqlite3.DatabaseError, _DamagedError) as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            aside = set_aside(path)
            say(f"{path} is damaged ({error}); it is kept as {aside.name}, and a new one is begun")
            return _open(path, say)
    except (sqlite3.Error, OSError) as error:
        raise StorageError(
            f"cannot open {path}: {error}", hint="check the disk and who may write there"
        ) from None


@contextmanager
def writing_database(folder: Path, say: Say) -> Iterator[sqlite3.Connection]:
    """Open the data base of a station to write into it at once; what prevents it is a
    StorageError."""
    with closing(open_database(folder, say)) as data:
        try:
            yield data
        except sqlite3.OperationalError as error:
            raise StorageError(
                f"cannot write into {folder / NAME}: {error}",
                hint="check the disk and who may write there",
            ) from None


def set_aside(path: Path) -> Path:
    """Rename a damaged data base and its journal, so that both can be looked at later."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for suffix in ("-wal", "-shm", ""):
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.rename(aside.with_name(aside.name + suffix))
    return aside


class _DamagedError(Exception):
    """What SQLite can open, and what is no data base of a station any more."""


def _open(path: Path, say: Say) -> sqlite3.Connection:
    data = sqlite3.connect(path, timeout=2.0, isolation_level=None)
    try:
        _check_version(data, path, say)
        data.execute("PRAGMA journal_mode = WAL")
        data.execute("PRAGMA synchronous = FULL")
        data.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        data.close()
        raise
    return data


def _check_version(data: sqlite3.Connection, path: Path, say: Say) -> None:
    version = data.execute("PRAGMA user_version").fetchone()[0]
    tables = {name for (name,) in data.execute("SELECT name FROM sqlite_schema WHERE type='table'")}
    if version == 0 and not tables:
        with data:
            data.executescript(
                f"BEGIN; PRAGMA application_id = {APPLICATION}; {_SCHEMA} {_INDICES}"
                f"PRAGMA user_version = {VERSION}; COMMIT;"
            )
        return
    if version > VERSION:
        raise StorageError(
            f"{path} has version {version}, this program knows {VERSION}",
            hint="update anoco-edge, or choose another folder",
        )
    if version < min(_MIGRATIONS) or not tables >= _TABLES:
        raise _DamagedError("tables are missing")
    found = data.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise _DamagedError(found)
    if version < VERSION:
        say(f"{path} has version {version}; it is brought to version {VERSION}")
        _migrate(data, version)


def _migrate(data: sqlite3.Connection, version: int) -> None:
    """Bring a data base of an earlier version to this one, in one transaction.

    A kill on the way leaves the earlier version, and the next start begins again.
    """
    steps = "".join(_MIGRATIONS[number] for number in range(version, VERSION))
    try:
        data.executescript(f"BEGIN IMMEDIATE; {steps} PRAGMA user_version = {VERSION}; COMMIT;")
    except sqlite3.Error:
        if data.in_transaction:
            data.rollback()
        raise


def read_counters(data: sqlite3.Connection) -> Counters:
    """Return the counters as they stand in the data base."""
    values = dict(data.execute("SELECT name, value FROM counter"))
    return Counters(**{name: values.get(name, 0) for name in _COUNTERS})


def new_run(data: sqlite3.Connection, station: str, now_ms: int) -> str:
    """Name a start of the station, by which all its uids begin.

    The name is the time of day; where that was set back to the time of an earlier start, or always
    starts again because no battery keeps it, the next one that is free.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = open_database(Path(folder), print)
    ...     print(new_run(data, "press-3", 0x19C2F0A1B2C))
    ...     data.close()
    press-3-19c2f0a1b2c
    """
    while True:
        run = f"{station}-{now_ms:x}"
        uids = "SELECT 1 FROM part WHERE uid BETWEEN ? AND ? LIMIT 1"
        if data.execute(uids, (f"{run}-", f"{run}-~")).fetchone() is None:
            return run
        now_ms += 1


def count(data: sqlite3.Connection, name: str, by: int = 1) -> None:
    """Advance a counter, in the transaction of what is counted."""
    data.execute(
        "INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + ?",
        (name, by, by),
    )
