"""Build a folder beside its target and move it to the target by one rename.

A `Staging` is a folder `.tmp-NAME-PID-N` beside the target. The new folder is built inside it,
under the name of the target. The process that owns the staging folder holds a lock on a file in it
until it ends. A staging folder whose lock is free was therefore left by a process that was killed,
and `sweep_stagings` removes it. The process id in its name does not matter, because ids are reused.

Some systems cannot exchange two names: Linux before 3.15, and some network and FUSE file systems.
There, the old folder is first moved into the staging folder as `replaced`, then the new folder is
moved to the target. A kill between these two renames leaves no folder at the target. The new folder
is complete at that time, so `complete_replacement` moves it to the target. It is called when a
bundle that is opened is not found; every sweep does the same.
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
_WINDOW = 1.0  # seconds to wait for a running process that is between its two renames


class Staging:
    """A temporary folder beside the target, in which one process builds the new folder."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.folder = folder
        self.target = target
        self._keep = False

    @property
    def building(self) -> Path:
        """Return the path at which the new folder is built; it ends with the target's name."""
        return self.folder / self.target.name

    def publish(self, *, replace: bool = True) -> None:
        """Sync the new folder to the disk and move it to the target.

        Without `replace`, a target that exists and is not empty raises a FileExistsError.
        """
        _sync_folders(self.building)
        # Until the new name is on the disk, a power cut would leave only the old folder. A process
        # that is stopped from here on therefore keeps both folders, and the next sweep removes one.
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
        # The staging folder must be on the disk before the old folder is moved into it.
        _sync(self.folder)
        _sync(self.folder.parent)
        self.target.rename(self.folder / _REPLACED)
        try:
            self.building.rename(self.target)
        except OSError:
            # If moving the old folder back fails too, the next command completes the replacement.
            with committed():
                (self.folder / _REPLACED).rename(self.target)
            raise

    def remove(self) -> None:
        """Delete the staging folder with the old folder, if one was replaced.

        It stays if `publish` was stopped halfway, because it may hold the only complete folder.
        """
        if not self._keep:
            with suppress(OSError):
                _remove(self.folder)


@contextmanager
def staging(target: Path, *, follow_link: bool = True) -> Iterator[Staging]:
    """Make a staging folder for `target`, and remove it at the end of the block.

    If the target is a link, the folder that it points to is replaced; without `follow_link`, the
    link itself is replaced.
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
        for parent in absent:  # innermost first; the one that holds the target is not empty
            with suppress(OSError):
                parent.rmdir()


def sweep_stagings(parent: Path) -> None:
    """Remove the staging folders in `parent` whose processes have ended.

    >>> sweep_stagings(Path("/proc"))
    """
    with suppress(OSError):
        for folder in sorted(parent.glob(f"{TEMPORARY}*")):
            with suppress(OSError, BundleError):  # a link in place of its lock is refused
                _sweep(folder)


def complete_replacement(target: Path) -> bool:
    """Finish the replacement of a process that was killed between its two renames.

    Return whether the target exists afterwards.


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
        # The process was killed before it made the lock, so its folder is empty. A folder that is
        # not empty is not a staging folder, and rmdir leaves it alone.
        folder.rmdir()
        return
    with _lock_of_the_dead(folder) as dead:
        if dead:
            _complete(folder)
            # The staging folder may hold the old folder, which is deleted only after the new one is
            # on the disk.
            _sync(folder.parent)
            _remove(folder)


def _remove(folder: Path) -> None:
    """Delete a staging folder, its lock last.

    A sweep removes a folder without a lock only if it is empty.
    """
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
    """Try to lock a staging folder for the block, and yield whether its owner has ended.

    A process that still runs keeps its lock, so this yields False for its folder.
    """
    with Directory.open(folder) as opened:
        handle = opened.open_lock(_LOCK)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # the lock is held, or the file system has no locks
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
            continue  # it belongs to this process or to an ended one with the same id
        except FileNotFoundError:
            continue  # another process swept it before it had a lock
        try:
            if _is_ours(handle):
                _sync(folder)  # after a power cut, a sweep needs the lock to remove it
                yield folder
                return
        finally:
            os.close(handle)
    raise FileExistsError(f"{target.parent} is full of temporary folders")


def _is_ours(handle: int) -> bool:
    """Lock a new staging folder; return False if another process swept it just before."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # without locks on this file system, no process sweeps either
    return os.fstat(handle).st_nlink > 0


def _sync(folder: Path) -> None:
    with Directory.open(folder) as opened:
        opened.sync()


def _sync_folders(folder: Path) -> None:
    """Sync a folder and all folders below it, the innermost first."""
    for path in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
        _sync(path)
    _sync(folder)
