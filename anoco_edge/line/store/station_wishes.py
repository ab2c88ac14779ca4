"""What the web process of the station asks of the store: pinned parts, and pictures for a trial.

The station alone writes station.db. The line reads it here and never waits for it: where there is
no such file there are no wishes.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

NAME = "station.db"
_WAIT_SECONDS = 1.0


def read_pins(folder: Path) -> set[str]:
    """Return the uids of the parts that a person has pinned, whose pictures are never deleted.

    A file that cannot be read is an error, because to delete a pinned picture cannot be undone.

    >>> read_pins(Path("no such folder"))
    set()
    """
    return {uid for (uid,) in _read(folder, "SELECT uid FROM pin", "pin")}


def wants_every_picture(folder: Path) -> bool:
    """Whether a new generation is being tried beside the current one, on the pictures of all parts.

    >>> wants_every_picture(Path("no such folder"))
    False
    """
    statement = "SELECT 1 FROM shadow WHERE state = 'running' LIMIT 1"
    return bool(_read(folder, statement, "shadow"))


def _read(folder: Path, statement: str, table: str) -> list[tuple[str, ...]]:
    path = folder / NAME
    if not path.exists():
        return []
    uri = path.absolute().as_uri() + "?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=_WAIT_SECONDS)) as data:
        known = data.execute(
            "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)
        ).fetchone()
        return data.execute(statement).fetchall() if known else []
