"""Write files so that a kill or a full disk leaves either the old content or all of the new."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from anoco_edge.errors import StorageError
from anoco_edge.storage.beneath import Directory, sweep_temporaries
from anoco_edge.storage.durability import NOT_DURABLE, NotDurableError, committed

_HINTS = {
    errno.ENOSPC: "the disk is full: free some space; nothing was changed",
    errno.EDQUOT: "the quota is used up: free some space; nothing was changed",
    errno.EFBIG: "a file may not grow that large here (ulimit -f); nothing was changed",
    errno.EROFS: "the place is read-only: copy the bundle to where it can be written",
    errno.EACCES: "no permission to write: copy the bundle to where it can be written",
    errno.EPERM: "no permission to write: copy the bundle to where it can be written",
}


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Turn an OSError while writing `what` into a StorageError with a message of one line."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "nothing was changed")
        if isinstance(error, NotDurableError):
            hint = NOT_DURABLE
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(f"cannot write {what}: {reason}", hint=hint) from None


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file completely and sync it to the disk, or leave the old one as it was.

    If only the sync after the rename fails, the new file is in place and NotDurableError is raised.
    """
    sweep_temporaries(path.parent, path.name)
    with Directory.open(path.parent) as folder:
        folder.put(path.name, data)
        with committed():
            folder.sync()


def sync_folder(folder: Path) -> None:
    """Sync `folder`, so that renames inside it survive a power cut."""
    with Directory.open(folder) as opened:
        opened.sync()
