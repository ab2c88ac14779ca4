"""Reports errors of the operating system while results are written, in one line each."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anoco_edge.errors import StorageError

ANOTHER_FOLDER = "choose another `folder`"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing_results(what: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError that says that what was written before stays."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(
            f"cannot write {what}: {reason}",
            hint="free some space; the rows written before are kept"
            if error.errno in _FULL
            else ANOTHER_FOLDER,
        ) from None
