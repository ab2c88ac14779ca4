"""Exchange two paths by one rename."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)  # kernel or file system lacks it


def exchange(first: Path, second: Path) -> bool:
    """Exchange two paths of one disk; return False if the kernel or file system cannot do it.

    >>> exchange(Path("/proc/version"), Path("/proc/uptime"))
    Traceback (most recent call last):
        ...
    PermissionError: [Errno 1] Operation not permitted: '/proc/version'
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:  # a C library older than glibc 2.28
        return False
    names = (os.fsencode(first), os.fsencode(second))
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNKNOWN:
        return False
    raise OSError(code, os.strerror(code), str(first))
