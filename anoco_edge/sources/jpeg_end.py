"""Finds where a JPEG ends, without decoding it."""

from __future__ import annotations

import re

START, END = b"\xff\xd8", b"\xff\xd9"
_MARKER = re.compile(rb"\xff+[^\xff]", re.DOTALL)
# In the data of a scan, FF 00 is a byte of value FF and FF D0 to FF D7 are restarts.
_AFTER_SCAN = re.compile(rb"\xff+[^\x00\xd0-\xd7\xff]", re.DOTALL)
_END, _SCAN = END[1], 0xDA
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


def jpeg_end(data: bytes | bytearray, begin: int = 0) -> int | None:
    """Find the position after the end marker of the JPEG at `begin`; None if it has none.

    An end marker within a segment (the preview picture in EXIF data has one) is not the end.

    >>> scan = bytes.fromhex("ffda0004 0102 11ff0022 ffd9")
    >>> jpeg_end(START + bytes.fromhex("ffe10006 ffd8ffd9") + scan + b"more")
    22
    >>> jpeg_end(START + scan[:-1]) is None
    True
    """
    at = begin + len(START)
    pattern = _MARKER
    while found := pattern.search(data, at):
        marker = data[found.end() - 1]
        at = found.end()
        pattern = _MARKER
        if marker == _END:
            return at
        if marker in _WITHOUT_LENGTH:
            continue
        if at + 2 > len(data):
            return None
        at += int.from_bytes(data[at : at + 2], "big")
        if marker == _SCAN:
            pattern = _AFTER_SCAN
    return None
