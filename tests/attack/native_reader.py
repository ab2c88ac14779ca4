"""Runs the native reader of bundles as one process that is asked about many bundles."""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any

import pytest
from native_build import shared_build

PATIENCE = 20.0  # seconds for one bundle
MOST_MEMORY = 1_000_000_000  # bytes for one bundle
_CRASHES = (3, 6)  # out of memory, internal error: such a bundle must be refused earlier


class NativeMissingError(Exception):
    """Raised if the library cannot be built on this machine."""


class NativeReader:
    """Runs `read_bundle verdicts` of runtime/tests, again whenever a bundle ended it."""

    def __init__(self) -> None:
        self._program = _find_program()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [str(self._program), "verdicts", "-"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def read(self, path: Path) -> dict[str, Any] | str:
        """Return what is in a bundle, or the message with which it is refused.

        A crash, a hang or too much memory raises RuntimeError.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(os.fsencode(path) + b"\n")
        self._process.stdin.flush()
        line, memory = self._answer(), self._memory()
        if not line or memory > MOST_MEMORY:
            self.close()
            code, self._process = self._process.returncode, self._start()
            raise RuntimeError(f"ended with {code}, {memory} bytes, said {line[:200]!r}")
        status, _, text = line.decode().rstrip("\n").partition(" ")
        if int(status) in _CRASHES:
            raise RuntimeError(f"status {status}: {text}")
        found: dict[str, Any] | str = text if int(status) else json.loads(text)
        return found

    def _answer(self) -> bytes:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        return self._process.stdout.readline() if ready else b""

    def _memory(self) -> int:
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return 0
        peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        return int(peaks[0]) * 1024 if peaks else 0

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _find_program() -> Path:
    """Find it beside the library that ANOCO_EDGE_LIBRARY names, or build it."""
    named = os.environ.get("ANOCO_EDGE_LIBRARY")
    if named and (Path(named).parent / "tests/read_bundle").is_file():
        return Path(named).parent / "tests/read_bundle"
    try:
        return shared_build("native") / "tests/read_bundle"
    except pytest.skip.Exception as why:
        raise NativeMissingError(str(why)) from None
