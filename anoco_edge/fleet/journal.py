"""Keeps the finished parts of a long run on the disk, so that a killed run can continue.

The first line says which run it is; every further line holds the result of one task. A line that a
kill left unfinished is removed, and its task is done again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anoco_edge.errors import StorageError, UsageError
from anoco_edge.results.atomic_lines import WholeLines
from anoco_edge.results.earlier_runs import UNFINISHED as NAME
from anoco_edge.results.storage_errors import ANOTHER_FOLDER, writing_results
from anoco_edge.sources.base import Closeable

__all__ = ["NAME", "Journal", "fingerprint"]


class Journal(Closeable):
    """The results of tasks, by the number of the task; use it in a `with`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Journal(Path(folder), {"bundle": "a"}) as journal:
    ...         journal.add(3, ["good"])
    ...     with Journal(Path(folder), {"bundle": "a"}) as journal:
    ...         3 in journal, journal.numbers(), journal[3]
    (True, [3], ['good'])
    """

    def __init__(self, folder: Path, run: Mapping[str, object]) -> None:
        self.path = folder / NAME
        self._places: dict[int, tuple[int, int]] = {}
        self._sizes: dict[int, int] = {}
        with writing_results(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = self.path.open("a+b")
            self._alone()
            kept = self._read(run)
            self._lines = WholeLines(self.path, kept)
            if not kept:
                self._lines.write(json.dumps({"run": run}) + "\n")

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def numbers(self) -> list[int]:
        """Return the numbers of the tasks that are done."""
        return list(self._places)

    def size(self, number: int) -> int:
        """Return how many results that task has."""
        return self._sizes[number]

    def __getitem__(self, number: int) -> list[Any]:
        start, size = self._places[number]
        self._lock.seek(start)
        found: list[Any] = json.loads(self._lock.read(size))["result"]
        return found

    def add(self, number: int, result: Sequence[object]) -> None:
        """Append the results of a task; afterwards they are on the disk."""
        text = json.dumps({"task": number, "result": result}, allow_nan=False) + "\n"
        before = self._lines.size
        with writing_results(self.path):
            self._lines.write(text)
        self._places[number] = (before, self._lines.size - before)
        self._sizes[number] = len(result)

    def remove(self) -> None:
        """Delete the journal, because the run is finished."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; a journal that holds no result is deleted."""
        if not self._places:
            self.remove()
        self._lines.close()
        self._lock.close()

    def _alone(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise StorageError(
                f"another run writes to {self.path.parent}",
                hint=f"wait for it, or {ANOTHER_FOLDER}",
            ) from None

    def _read(self, run: Mapping[str, object]) -> int:
        """Note which results are there, and return how many bytes are whole lines."""
        self._lock.seek(0)
        header, whole = None, 0
        for line in self._lock:
            try:
                found = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                found = None
            if not isinstance(found, dict):
                break
            if header is None:
                header = found
            else:
                self._places[found["task"]] = (whole, len(line))
                self._sizes[found["task"]] = len(found["result"])
            whole += len(line)
        if not self._places:
            return 0
        self._check((header or {}).get("run"), run)
        return whole

    def _check(self, found: Any, run: Mapping[str, object]) -> None:
        run = json.loads(json.dumps(run))  # in the file, tuples are lists
        if found == run:
            return
        other = [k for k in run if not isinstance(found, dict) or found.get(k) != run[k]]
        self._lock.close()
        raise UsageError(
            f"{self.path.parent} holds an unfinished run that differs in: {', '.join(other)}",
            hint=f"finish that one, {ANOTHER_FOLDER}, or delete {self.path}",
        )


def fingerprint(paths: Sequence[str]) -> str:
    """Return a hash of names, sizes and times, by which the same files are recognized."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - a hundred thousand of them
            facts = f"{status.st_size} {status.st_mtime_ns}"
        except OSError:
            facts = "unreadable"
        digest.update(f"{os.fsencode(path)!r} {facts}\n".encode())
    return digest.hexdigest()
