"""The lock that lets one process at a time change a product."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from anoco_edge.errors import StorageError
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.beneath import Directory
from anoco_edge.storage.staging import sweep_stagings

LOCK = ".lock"


@contextlib.contextmanager
def locked(folder: Path, wait: float, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a product's folder, `BUNDLE/products/NAME`, which is created if missing.

    While another process holds the lock, this function waits for up to `wait` seconds. The lock
    belongs to the open file, so it is released when the process ends, however it ends.
    """
    root = folder.parent.parent
    with (
        writing(str(folder)),
        Directory.open(root) as bundle,
        bundle.folder(f"{folder.parent.name}/{folder.name}", create=True) as opened,
    ):
        handle = opened.open_lock(LOCK)
    try:
        deadline, announced = time.monotonic() + wait, False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not announced:
                    on_wait(f"waiting for another process that is changing {folder.name}")
                    announced = True
                if time.monotonic() >= deadline:
                    raise StorageError(
                        f"another process is changing {folder}", hint="try again when it is done"
                    ) from None
                time.sleep(0.05)
            except OSError as error:  # some network file systems have no locks
                raise StorageError(
                    f"cannot lock {folder}: {error.strerror or error}",
                    hint="copy the bundle to a local disk to change it",
                ) from None
        sweep_stagings(root.parent)
        yield
    finally:
        os.close(handle)
