"""Building the library that stands between a program and its files (shim.c), and speaking to it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")


class Mode(IntEnum):
    """What happens at the call of the chosen number."""

    OFF = 0
    COUNT = 1
    KILL_BEFORE = 2
    KILL_WITHIN = 3  # of a write half is done
    KILL_AFTER = 4
    FAIL = 5
    FAIL_FROM = 6  # that call and all later ones
    SHORT = 7  # of a write half is done, as the system may


class Op(IntEnum):
    """A recorded call."""

    OPEN = 0
    WRITE = 1
    SYNC = 2
    RENAME = 3
    LINK = 4
    UNLINK = 5
    MKDIR = 6
    TRUNCATE = 7


def compiler() -> str | None:
    """The C compiler of this machine, if it has one."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def build_shim(folder: Path) -> Path:
    """Compile shim.c; takes a fifth of a second."""
    target = folder / "shim.so"
    command = [compiler() or "cc", "-shared", "-fPIC", "-O1", "-o", str(target), str(SOURCE)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return target


class Shim:
    """The library in a process that was started with it preloaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])
        self._library.attack_hit.restype = ctypes.c_char_p
        self._library.attack_calls.restype = ctypes.c_long
        self._library.attack_clock_reads.restype = ctypes.c_long

    def arm(self, root: str, mode: int, number: int = 0, error: int = 0, trace: int = -1) -> None:
        """From now on; `trace` is a file descriptor that takes the record."""
        self._library.attack_arm(os.fsencode(root), mode, ctypes.c_long(number), error, trace)

    def disarm(self) -> None:
        """Let all calls pass; the count stays."""
        self._library.attack_disarm()

    def step_clock(self, before: int, turn: int, after: int) -> None:
        """The wall clock is off by `before` seconds, from its read number `turn` by `after`."""
        args = ctypes.c_longlong(before), ctypes.c_long(turn), ctypes.c_longlong(after)
        self._library.attack_clock(*args)

    def refuse_exchange(self, on: bool) -> None:
        """As a file system without RENAME_EXCHANGE."""
        self._library.attack_no_exchange(int(on))

    @property
    def calls(self) -> int:
        """How many calls changed something below the root."""
        return int(self._library.attack_calls())

    @property
    def clock_reads(self) -> int:
        """How often the wall clock was read while it was stepped."""
        return int(self._library.attack_clock_reads())

    @property
    def hit(self) -> str:
        """The call of the chosen number and its file, if it came."""
        return str(os.fsdecode(self._library.attack_hit()))
