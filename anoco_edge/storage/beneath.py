"""Open files below one directory without following a link.

Each component of a path is opened relative to the directory before it, with O_NOFOLLOW. That is
what openat2 calls RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, and it works on every kernel. A special
file (a FIFO, a device, a socket) is refused before it is opened, because opening it can block.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from anoco_edge.errors import BundleError

TEMPORARY = ".tmp-"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


class Directory:
    """An open directory. Names are relative to it, with `/` between their components.

    Links and special files raise a BundleError; every other failure raises an OSError.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    @classmethod
    def open(cls, path: Path) -> Directory:
        """Open the directory itself, which may be reached through links that the user made.

        >>> with Directory.open(Path("/")) as root:
        ...     root.exists("no such file")
        False
        """
        return cls(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def close(self) -> None:
        """Close the handle of the directory."""
        os.close(self._handle)

    def __enter__(self) -> Directory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    # ---- folders

    def folder(self, name: str, *, create: bool = False) -> Directory:
        """Open a directory below this one; `create` makes the directories that are missing."""
        current = self
        for part in self._components(name):
            try:
                below = current._enter(part, create=create)
            finally:
                if current is not self:
                    current.close()
            current = below
        return current

    def names(self) -> list[str]:
        """Return the names of all entries of this directory, sorted."""
        with os.scandir(self._handle) as entries:
            return sorted(entry.name for entry in entries)

    def files(self) -> list[str]:
        """Return the paths of all files in and below this folder; refuse links and special files.

        The paths are relative to this folder.
        """
        found: list[str] = []
        for name in self.names():
            with suppress(FileNotFoundError):  # another process may delete its temporary files
                if stat.S_ISDIR(self._status(name).st_mode):
                    with self.folder(name) as below:
                        found += [f"{name}/{file}" for file in below.files()]
                else:
                    self._check(name)
                    found.append(name)
        return found

    def sync(self, name: str = "") -> None:
        """Make the entries of this directory durable, or those of one below it."""
        if not name:
            os.fsync(self._handle)
            return
        with self.folder(name) as below:
            below.sync()

    def identity(self) -> tuple[int, int]:
        """Return the numbers of the device and the inode.

        Two handles with the same numbers refer to the same directory.
        """
        status = os.fstat(self._handle)
        return status.st_dev, status.st_ino

    # ---- files

    def exists(self, name: str) -> bool:
        """Return whether a regular file has this name; refuse anything else of that name."""
        try:
            with self._parent(name) as (folder, last):
                folder._check(last)
        except FileNotFoundError:
            return False
        return True

    def holds_folder(self, name: str) -> bool:
        """Return whether a directory has this name; refuse a link."""
        try:
            return stat.S_ISDIR(self._status(name).st_mode)
        except FileNotFoundError:
            return False

    def open_file(self, name: str) -> BinaryIO:
        """Open a regular file for reading."""
        with self._parent(name) as (folder, last):
            return os.fdopen(folder._open(last, _READ), "rb")

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return the content of a regular file; refuse one of more than `most` bytes."""
        with self.open_file(name) as stream:
            size = os.fstat(stream.fileno()).st_size
            if most is not None and size > most:
                raise BundleError(
                    f"{self.path / name} has {size} bytes, more than {most}",
                )
            return stream.read()

    def open_lock(self, name: str) -> int:
        """Open a lock file, which is created if it is missing; the caller closes the handle."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return self._open(name, flags, missing_ok=True)

    def put(self, name: str, data: bytes | memoryview, *, mode: int = 0o666) -> None:
        """Write a temporary file, sync its content to the disk, and rename it to `name`.

        The rename is durable after `sync` of its folder. Missing folders of the path are created.
        """
        with self._parent(name, create=True) as (folder, last):
            folder._put(last, data, mode)

    def remove(self, name: str) -> None:
        """Delete a file; a file that does not exist is not an error."""
        with suppress(FileNotFoundError), self._parent(name) as (folder, last):
            os.unlink(last, dir_fd=folder._handle)

    # ---- one component of a path

    def _components(self, name: str) -> list[str]:
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise BundleError(
                f"{self.path}/{name} points outside the bundle",
                hint="do not use this bundle: make it with anoco-edge export",
            )
        return parts

    @contextmanager
    def _parent(self, name: str, *, create: bool = False) -> Iterator[tuple[Directory, str]]:
        *above, last = self._components(name)
        if not above:
            yield self, last
            return
        with self.folder("/".join(above), create=create) as folder:
            yield folder, last

    def _enter(self, part: str, *, create: bool) -> Directory:
        try:
            handle = os.open(part, _FOLDER, dir_fd=self._handle)
        except FileNotFoundError:
            if not create:
                raise
            with suppress(FileExistsError):  # another process may have just created it
                os.mkdir(part, dir_fd=self._handle)
            self.sync()
            return self._enter(part, create=False)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                self._check(part, stat.S_IFDIR)
            raise
        return Directory(self.path / part, handle)

    def _status(self, part: str) -> os.stat_result:
        """Return the status of an entry of this directory; refuse a link."""
        status = os.stat(part, dir_fd=self._handle, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise BundleError(
                f"{self.path / part} is a link",
                hint="a bundle contains no links: copy the file itself",
            )
        return status

    def _check(self, part: str, wanted: int = stat.S_IFREG) -> None:
        self._check_kind(part, self._status(part).st_mode, wanted)

    def _check_kind(self, part: str, mode: int, wanted: int = stat.S_IFREG) -> None:
        kind = stat.S_IFMT(mode)
        if kind != wanted:
            raise BundleError(
                f"{self.path / part} is {_KINDS.get(kind, 'something else')}, not {_KINDS[wanted]}",
                hint="remove it, or copy the bundle again",
            )

    def _open(self, part: str, flags: int, *, missing_ok: bool = False) -> int:
        try:  # The check comes before the open, because opening a device can have effects.
            self._check(part)
        except FileNotFoundError:
            if not missing_ok:
                raise
        handle = os.open(part, flags, 0o644, dir_fd=self._handle)
        try:
            self._check_kind(part, os.fstat(handle).st_mode)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _put(self, last: str, data: bytes | memoryview, mode: int) -> None:
        temporary = temporary_name(last)
        with suppress(FileNotFoundError):  # left by an earlier process with the same process id
            os.unlink(temporary, dir_fd=self._handle)
        try:
            handle = os.open(temporary, _NEW, mode, dir_fd=self._handle)
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, last, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=self._handle)
            raise


def read_below(root: Path, path: Path, most: int | None = None) -> bytes:
    """Return the content of `path`, a regular file below the directory `root`.

    >>> read_below(Path("/proc"), Path("/proc/version"))[:5]
    b'Linux'
    """
    with Directory.open(root) as folder:
        return folder.read(path.relative_to(root).as_posix(), most)


def temporary_name(name: str) -> str:
    """Return the name that a file has while this process writes it.

    >>> temporary_name("a.json").startswith(".tmp-a.json-")
    True
    """
    return f"{TEMPORARY}{name}-{os.getpid()}"


def sweep_temporaries(folder: Path, name: str) -> None:
    """Remove the temporary files that ended processes left while they wrote the file `name`.

    >>> sweep_temporaries(Path("/proc"), "a.json")
    """
    for path in folder.glob(f"{TEMPORARY}{glob.escape(name)}-*"):
        process = path.name.rpartition("-")[2]
        if process.isdecimal() and not Path("/proc", process).exists():
            with suppress(FileNotFoundError):
                path.unlink()
