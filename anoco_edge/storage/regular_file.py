"""Open a file by an untrusted path without ever waiting for a pipe, a device or a socket."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotRegularFileError(OSError):
    """The path names a folder, a pipe, a device or a socket."""


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading bytes; links are followed.

    Anything else raises `NotRegularFileError`, which is an OSError. The check is repeated on the
    open file, so that a file exchanged for a pipe in between does not block the program.

    >>> open_regular("/dev/null")
    Traceback (most recent call last):
    anoco_edge.storage.regular_file.NotRegularFileError: [Errno 22] not a regular file: '/dev/null'
    """
    # The check comes before the open, because opening a pipe already affects the process that
    # writes to it, and opening some devices has effects as well.
    _check(os.stat(path).st_mode, path)  # noqa: PTH116 - as os.open below takes it
    # Without O_NONBLOCK, opening a pipe waits until a process writes to it.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check(os.fstat(handle).st_mode, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str | Path) -> bytes:
    """Return all bytes of a regular file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     read_regular(file.name)
    b''
    """
    with open_regular(path) as file:
        return file.read()


def _check(mode: int, path: str | Path) -> None:
    if stat.S_ISDIR(mode):
        raise NotRegularFileError(errno.EISDIR, "is a folder", str(path))
    if not stat.S_ISREG(mode):
        raise NotRegularFileError(errno.EINVAL, "not a regular file", str(path))
