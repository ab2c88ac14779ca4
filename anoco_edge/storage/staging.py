"""A folder that is built beside its place and takes that place by one rename.

A `Staging` is a folder `.tmp-NAME-PID` beside the target. What will become the target is built
inside it, under the target's own name. Its owner holds a lock on a file in it as long as it lives:
a staging folder whose lock is free was left by a process that was killed, whatever its number, and
`sweep_stagings` removes it.

Where the kernel or the file system cannot exchange two names (before Linux 3.15; some network and
FUSE file systems), the old folder is moved into the staging folder as `replaced`, then the new one
is moved out: a kill between these two renames leaves no folder at the target. The new one is whole
by then, and `complete_replacement` moves it out: it is called wherever a bundle is opened and not
found, and by every sweep.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anoco_edge.errors import BundleError
from anoco_edge.storage.beneath import TEMPORARY, Directory
from anoco_edge.storage.durability import committed
from anoco_edge.storage.exchange import exchange

_LOCK = ".lock"
_REPLACED = "replaced"
_NAME = re.compile(rf"{re.escape(TEMPORARY)}(.+)-[0-9]+-[0-9]+")
_WINDOW = 1.0  # seconds to wait for a live process that is between its two renames


class Staging:
    """A folder of one process beside the target."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.folder = folder
        self.target = target
        self._keep = False

    @property
    def building(self) -> Path:
        """Where the new folder is built; it has the target's name."""
        return self.folder / self.target.name

    def publish(self, *, replace: bool = True) -> None:
        """Put the new folder, whole and on the disk, in the target's place.

        Without `replace`, a folder that is there with something in it is a FileExistsError.
        """
        _sync_folders(self.building)
        # Until the disk has the new name, the old folder is all that a power cut would leave: who
        # is stopped from here on leaves both folders to the next sweep.
        self._keep = True
        try:
            self._take_place(replace)
        except OSError:
            self._keep = (self.folder / _REPLACED).exists()
            raise
        with committed():
            _sync(self.target.parent)
        self._keep = False

    def _take_place(self, replace: bool) -> None:
        if not replace or not self.target.exists():
            try:
                self.building.rename(self.target)
            except OSError as error:
                if error.errno == errno.ENOTEMPTY:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
                raise
        elif not exchange(self.building, self.target):
            self._replace_in_two_steps()

    def _replace_in_two_steps(self) -> None:
        _sync(self.folder)  # where the old folder goes must be on the disk before it goes there
        _sync(self.folder.parent)
        self.target.rename(self.folder / _REPLACED)
        try:
            self.building.rename(self.target)
        except OSError:
            with committed():  # where the way back fails too, the next command goes on from here
                (self.folder / _REPLACED).rename(self.target)
            raise

    def remove(self) -> None:
        """Delete it, with whatever was replaced."""
        if not self._keep:
            with suppress(OSError):
                _remove(self.folder)


@contextmanager
def staging(target: Path, *, follow_link: bool = True) -> Iterator[Staging]:
    """A staging folder for `target`, removed at the end whatever happens.

    A target that is a link stands for the folder that it names, which is replaced; without
    `follow_link` it is the link that is replaced.
    """
    place = Path(os.path.realpath(target)) if follow_link and target.is_symlink() else target
    absent = [parent for parent in (place.parent, *place.parent.parents) if not parent.exists()]
    try:
        if absent:
            place.parent.mkdir(parents=True, exist_ok=True)
        for parent in absent:
            _sync(parent.parent)
        sweep_stagings(place.parent)
        with _locked_folder(place) as folder:
            stage = Staging(folder, place)
            try:
                yield stage
            finally:
                stage.remove()
    finally:
        for parent in absent:  # the innermost first; the one with the target is not empty
            with suppress(OSError):
                parent.rmdir()


def sweep_stagings(parent: Path) -> None:
    """Remove the staging folders in `parent` of processes that are no more.

    >>> sweep_stagings(Path("/proc"))
    """
    with suppress(OSError):
        for folder in sorted(parent.glob(f"{TEMPORARY}*")):
            with suppress(OSError, BundleError):  # one whose lock is a link is not ours
                _sweep(folder)


def complete_replacement(target: Path) -> bool:
    """Finish what a process was killed in, between its two renames; whether the target is there.

    >>> complete_replacement(Path("/proc/no such folder"))
    False
    """
    deadline = time.monotonic() + _WINDOW
    while not target.exists():
        left = [f for f in target.parent.glob(f"{TEMPORARY}*") if _replaces(f, target)]
        if not left or time.monotonic() > deadline:
            return False
        for folder in left:
            with suppress(OSError, BundleError), _lock_of_the_dead(folder) as dead:
                if dead:
                    _complete(folder)
        time.sleep(0.01)
    return True


def _replaces(folder: Path, target: Path) -> bool:
    found = _NAME.fullmatch(folder.name)
    return found is not None and found[1] == target.name and (folder / _REPLACED).is_dir()


def _sweep(folder: Path) -> None:
    if _NAME.fullmatch(folder.name) is None or folder.is_symlink():
        return
    if not (folder / _LOCK).exists():
        folder.rmdir()  # killed before it had a lock: it is empty, or it is not ours
        return
    with _lock_of_the_dead(folder) as dead:
        if dead:
            _complete(folder)
            _sync(folder.parent)  # it may hold the old folder, whose successor must be on the disk
            _remove(folder)


def _remove(folder: Path) -> None:
    """The lock goes last: without one, only an empty folder is swept."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()
    (folder / _LOCK).unlink()
    folder.rmdir()


def _complete(folder: Path) -> None:
    found = _NAME.fullmatch(folder.name)
    if found is None:  # not a staging folder
        return
    target = folder.parent / found[1]
    new = folder / target.name
    if (folder / _REPLACED).is_dir() and new.is_dir() and not target.exists():
        new.rename(target)
        _sync(target.parent)


@contextmanager
def _lock_of_the_dead(folder: Path) -> Iterator[bool]:
    """Whether the lock came free, held for the block; a live owner keeps it."""
    with Directory.open(folder) as opened:
        handle = opened.open_lock(_LOCK)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held; or no locks here, and then nobody knows
            yield False
        else:
            yield os.fstat(handle).st_nlink > 0
    finally:
        os.close(handle)


@contextmanager
def _locked_folder(target: Path) -> Iterator[Path]:
    for attempt in range(1000):
        folder = target.with_name(f"{TEMPORARY}{target.name}-{os.getpid()}-{attempt}")
        try:
            folder.mkdir()
            with Directory.open(folder) as opened:
                handle = opened.open_lock(_LOCK)
        except FileExistsError:
            continue  # this process has one already, or a dead one of the same number left it
        except FileNotFoundError:
            continue  # swept in the moment before it had a lock
        try:
            if _is_ours(handle):
                _sync(folder)  # without its lock, a power cut would leave it to nobody
                yield folder
                return
        finally:
            os.close(handle)
    raise FileExistsError(f"{target.parent} is full of temporary folders")


def _is_ours(handle: int) -> bool:
    """Lock it; False when it was swept in the moment before."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # no locks here: then nobody sweeps either
    return os.fstat(handle).st_nlink > 0


def _sync(folder: Path) -> None:
    with Directory.open(folder) as opened:
        opened.sync()


def _sync_folders(folder: Path) -> None:
    """Every folder below, the innermost first."""
    for path in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
        _sync(path)
    _sync(folder)
