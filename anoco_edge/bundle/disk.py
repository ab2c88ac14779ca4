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

TEMPORARY = ".tmp-"
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
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(f"cannot write {what}: {reason}", hint=hint) from None


def write_atomic(path: Path, data: bytes) -> None:
    """The file is there whole, and on the disk, or not at all."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(folder: Path, wait: float, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the folder's lock; another holder is waited for, up to `wait` seconds.

    The lock belongs to the open file, so it falls with the process, however that ends.
    """
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
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
        yield
    finally:
        os.close(handle)
