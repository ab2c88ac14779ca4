"""Keeps earlier runs: what is in a run's folder moves to runs/0001, 0002 and so on.

The folder itself holds the newest run. Rows name overlays and frames relative to their file, so a
run can be moved as a whole. Its files are renamed into runs/.moving-0001, and that folder gets its
final name at the end. A new run writes nothing before that, so whatever lies in the folder while
there is a .moving-0001 belongs to the earlier run: the next start completes a move that was killed.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from anoco_edge.errors import StorageError
from anoco_edge.results.storage_errors import ANOTHER_FOLDER
from anoco_edge.storage.atomic_files import sync_folder

RUNS = "runs"
UNFINISHED = "unfinished.jsonl"  # the journal of a run with many workers
_MOVING = ".moving-"
# The journal moves first: without its overlays it must not be taken up again.
_PATTERNS = (UNFINISHED, "results*.csv", "report.html", "overlays", "frames", "results*.jsonl")


def keep_earlier_run(folder: Path, *, journal: bool = True) -> Path | None:
    """Move the run that `folder` holds, and return where it is now; None when there is none.

    With `journal=False` the journal in the folder belongs to the run that begins, and stays.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as out:
    ...     _ = Path(out, "results.jsonl").write_text("{}")
    ...     kept = keep_earlier_run(Path(out))
    ...     kept.relative_to(out).as_posix(), keep_earlier_run(Path(out))
    ('runs/0001', None)
    """
    names = _PATTERNS if journal else _PATTERNS[1:]
    kept = None
    for half in sorted(folder.glob(f"{RUNS}/{_MOVING}*")):
        kept = _move(folder, half, names)
    if _holds_a_run(folder, names):
        half = folder / RUNS / f"{_MOVING}{_free_number(folder):04d}"
        half.mkdir(parents=True)
        sync_folder(folder / RUNS)
        sync_folder(folder)
        kept = _move(folder, half, names)
    return kept


def all_runs(folder: Path) -> list[Path]:
    """Return the folders of the earlier runs and of the newest, oldest first."""
    numbered = [p for p in folder.glob(f"{RUNS}/*") if p.name.isdecimal()]
    return [*sorted(numbered, key=lambda path: int(path.name)), folder]


def next_segment(folder: Path) -> int:
    """Return the number N under which a results.jsonl that is full becomes results.000N.jsonl."""
    taken = [path.name.split(".")[1] for path in folder.glob("results.*.*")]
    return 1 + max((int(number) for number in taken if number.isdecimal()), default=0)


def lock_folder(folder: Path, owner: object) -> Callable[[], object]:
    """Lock the folder, and refuse a second run in it.

    The lock is held until `owner` is garbage-collected or the returned function is called.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    release = weakref.finalize(owner, os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        release()
        raise _taken(folder) from None
    except OSError:
        pass  # the file system has no locks, so the user has to avoid two runs at once
    return release


def refuse_fleet(folder: Path) -> None:
    """Refuse a folder in which a run with many workers holds the lock of its journal."""
    try:
        handle = os.open(folder / UNFINISHED, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _taken(folder) from None
    finally:
        os.close(handle)


def _taken(folder: Path) -> StorageError:
    return StorageError(f"another run writes to {folder}", hint=f"wait for it, or {ANOTHER_FOLDER}")


def _files(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    for pattern in names:
        yield from sorted(folder.glob(pattern))


def _holds_a_run(folder: Path, names: Sequence[str]) -> bool:
    """Whether there are rows or pictures; a run that ended before its first row leaves none."""
    return any(
        any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0
        for path in _files(folder, names)
        if path.is_dir() or path.suffix == ".jsonl"
    )


def _move(folder: Path, half: Path, names: Sequence[str]) -> Path:
    for path in _files(folder, names):
        if not (half / path.name).exists():  # otherwise it belongs to a later run, which moves next
            path.rename(half / path.name)
    # This file marks the folder as a run, whose overlays are not to be inspected as parts.
    (half / "results.jsonl").touch()
    # The renames must be on the disk before the new run takes the names, so that after a power cut
    # no file of the earlier run is mistaken for one of the new run.
    sync_folder(half)
    sync_folder(folder)
    name = half.name.removeprefix(_MOVING)
    if not name.isdecimal() or (folder / RUNS / name).exists():
        name = f"{_free_number(folder):04d}"
    kept = half.rename(folder / RUNS / name)
    sync_folder(folder / RUNS)
    return kept


def _free_number(folder: Path) -> int:
    names = [path.name.removeprefix(_MOVING) for path in folder.glob(f"{RUNS}/*")]
    names += [path.name.removeprefix(_MOVING) for path in folder.glob(f"{RUNS}/{_MOVING}*")]
    return 1 + max((int(name) for name in names if name.isdecimal()), default=0)
