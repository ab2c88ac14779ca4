"""Reads the record of calls that shim.c writes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.attack.shim import Op

_HEAD = struct.Struct("=6q")


@dataclass(frozen=True)
class Event:
    """One call that changed something; the meaning of `a` and `b` depends on the call.

    OPEN: `a` says that it created the file, `b` that it emptied it. WRITE: `a` is the offset.
    RENAME: `a` holds the flags. TRUNCATE: `a` is the size.
    """

    op: Op
    a: int
    b: int
    path: str
    other: str
    data: bytes


def read_trace(path: Path, root: Path) -> Iterator[Event]:
    """Return the events in their order, with paths relative to `root`."""
    raw, at = path.read_bytes(), 0
    while at < len(raw):
        op, a, b, one, two, size = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        first, second = raw[at : at + one], raw[at + one : at + one + two]
        data = raw[at + one + two : at + one + two + size]
        at += one + two + size
        yield Event(Op(op), a, b, _below(first, root), _below(second, root), data)


def _below(path: bytes, root: Path) -> str:
    return path.decode().removeprefix(str(root)).strip("/")
