"""Writing that a kill, a full disk or a second process cannot break."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from anoco_edge.errors import StorageError
from anoco_edge.storage.beneath import TEMPORARY, Directory, sweep_temporaries
from anoco_edge.storage.durability import NOT_DURABLE, NotDurableError, committed
from anoco_edge.storage.staging import sweep_stagings

__all__ = ["LOCK", "TEMPORARY", "locked", "sync_folder", "write_atomic", "writing"]

LOCK = ".lock"

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
    """Turn an operating-system error while writing `what` into one clear line."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "nothing was changed")
        if isinstance(error, NotDurableError):
            hint = NOT_DURABLE
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(f"cannot write {what}: {reason}", hint=hint) from None


def write_atomic(path: Path, data: bytes) -> None:
    """The file is there whole, and on the disk, or not at all."""
    sweep_temporaries(path.parent, path.name)
    with Directory.open(path.parent) as folder:
        folder.put(path.name, data)
        with committed():
            folder.sync()


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    with Directory.open(folder) as opened:
        opened.sync()


@contextlib.contextmanager
def locked(folder: Path, wait: float, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a product's folder, `BUNDLE/products/NAME`, which is made if need be.

    Another holder is waited for, up to `wait` seconds. The lock belongs to the open file, so it
    falls with the process, however that ends.
    """
    root = folder.parent.parent
    with (
        writing(str(folder)),
        Directory.open(root) as bundle,
        bundle.folder(f"{folder.parent.name}/{folder.name}", create=True) as opened,
    ):
        handle = opened.open_lock(LOCK)
    try:
        deadline, told = time.monotonic() + wait, False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    on_wait(f"waiting for another process that is changing {folder.name}")
                    told = True
                if time.monotonic() >= deadline:
                    raise StorageError(
                        f"another process is changing {folder}", hint="try again when it is done"
                    ) from None
                time.sleep(0.05)
            except OSError as error:  # some network file systems know no locks
                raise StorageError(
                    f"cannot lock {folder}: {error.strerror or error}",
                    hint="copy the bundle to a local disk to change it",
                ) from None
        sweep_stagings(root.parent)
        yield
    finally:
        os.close(handle)
