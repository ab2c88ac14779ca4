"""Builds and controls the library between a program and its files (shim.c)."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")


class Mode(IntEnum):
    """What happens at the call with the chosen number."""

    OFF = 0
    COUNT = 1
    KILL_BEFORE = 2
    KILL_WITHIN = 3  # half of the write is done
    KILL_AFTER = 4
    FAIL = 5
    FAIL_FROM = 6  # that call and all later ones
    SHORT = 7  # half of the write is done, as POSIX allows


class Op(IntEnum):
    """The kinds of recorded calls."""

    OPEN = 0
    WRITE = 1
    SYNC = 2
    RENAME = 3
    LINK = 4
    UNLINK = 5
    MKDIR = 6
    TRUNCATE = 7


def compiler() -> str | None:
    """Return the C compiler of this machine, or None."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def build_shim(folder: Path) -> Path:
    """Compile shim.c, which takes a fifth of a second."""
    target = folder / "shim.so"
    command = [compiler() or "cc", "-shared", "-fPIC", "-O1", "-o", str(target), str(SOURCE)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return target


class Shim:
    """Controls the library in a process that was started with it preloaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])
        self._library.attack_hit.restype = ctypes.c_char_p
        self._library.attack_calls.restype = ctypes.c_long
        self._library.attack_clock_reads.restype = ctypes.c_long

    def arm(self, root: str, mode: int, number: int = 0, error: int = 0, trace: int = -1) -> None:
        """Start counting and attacking; `trace` is a file descriptor for the record."""
        self._library.attack_arm(os.fsencode(root), mode, ctypes.c_long(number), error, trace)

    def disarm(self) -> None:
        """Let all calls pass; the count stays."""
        self._library.attack_disarm()

    def step_clock(self, before: int, turn: int, after: int) -> None:
        """Set the wall clock off by `before` seconds, and by `after` from its given read on."""
        args = ctypes.c_longlong(before), ctypes.c_long(turn), ctypes.c_longlong(after)
        self._library.attack_clock(*args)

    def refuse_exchange(self, on: bool) -> None:
        """Act as a file system without RENAME_EXCHANGE."""
        self._library.attack_no_exchange(int(on))

    @property
    def calls(self) -> int:
        """Return how many calls changed something below the root."""
        return int(self._library.attack_calls())

    @property
    def clock_reads(self) -> int:
        """Return how often the wall clock was read while it was stepped."""
        return int(self._library.attack_clock_reads())

    @property
    def hit(self) -> str:
        """Return the call with the chosen number and its file, if it happened."""
        return str(os.fsdecode(self._library.attack_hit()))
