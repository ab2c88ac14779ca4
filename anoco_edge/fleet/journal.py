"""What of a long run is done, on the disk: a run that was killed goes on where it was.

The first line says which run it is; every further line holds the result of one task. A line that
was cut off by a kill is cut off for good, and its task done again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anoco_edge.errors import StorageError, UsageError
from anoco_edge.results.atomic_lines import WholeLines
from anoco_edge.sinks.folder import writing_results
from anoco_edge.sources.base import Closing

NAME = "unfinished.jsonl"  # sources/files.py knows it too


class Journal(Closing):
    """The results of tasks, by number; use it in a `with`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Journal(Path(folder), {"bundle": "a"}) as journal:
    ...         journal.add(3, ["good"])
    ...     with Journal(Path(folder), {"bundle": "a"}) as journal:
    ...         3 in journal, journal.numbers(), journal[3]
    (True, [3], ['good'])
    """

    def __init__(self, folder: Path, run: dict[str, Any]) -> None:
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
        """Of the tasks that are done."""
        return list(self._places)

    def size(self, number: int) -> int:
        """How many results that task has."""
        return self._sizes[number]

    def __getitem__(self, number: int) -> list[Any]:
        start, size = self._places[number]
        self._lock.seek(start)
        found: list[Any] = json.loads(self._lock.read(size))["result"]
        return found

    def add(self, number: int, result: list[Any]) -> None:
        """Afterwards it is on the disk."""
        text = json.dumps({"task": number, "result": result}, allow_nan=False) + "\n"
        before = self._lines.size
        with writing_results(self.path):
            self._lines.write(text)
        self._places[number] = (before, self._lines.size - before)
        self._sizes[number] = len(result)

    def remove(self) -> None:
        """The run is finished."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of it; one that holds nothing goes."""
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
                hint="wait for it, or choose another `folder`",
            ) from None

    def _read(self, run: dict[str, Any]) -> int:
        """Note what is there, and how many bytes of it are whole."""
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

    def _check(self, found: Any, run: dict[str, Any]) -> None:
        run = json.loads(json.dumps(run))  # as it was written: tuples are lists there
        if found == run:
            return
        other = [k for k in run if not isinstance(found, dict) or found.get(k) != run[k]]
        self._lock.close()
        raise UsageError(
            f"{self.path.parent} holds an unfinished run that differs in: {', '.join(other)}",
            hint=f"finish that one, choose another `folder`, or delete {self.path}",
        )


def fingerprint(paths: Sequence[str]) -> str:
    """Of files by name, size and time: whether these are still the same pictures."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - a hundred thousand of them
            facts = f"{status.st_size} {status.st_mtime_ns}"
        except OSError:
            facts = "unreadable"
        digest.update(f"{os.fsencode(path)!r} {facts}\n".encode())
    return digest.hexdigest()
