"""Compute the SHA-256 of bytes, of files and of open streams."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO


def sha256_bytes(data: bytes | memoryview) -> str:
    """Return the SHA-256 of `data` as hex digits.

    >>> sha256_bytes(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits; the file is read in pieces to save memory."""
    with path.open("rb") as stream:
        return sha256_stream(stream)


def sha256_stream(stream: BinaryIO) -> str:
    """Return the SHA-256, as hex digits, of an open file from its position to its end.

    >>> import io
    >>> sha256_stream(io.BytesIO(b""))[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    while chunk := stream.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()
