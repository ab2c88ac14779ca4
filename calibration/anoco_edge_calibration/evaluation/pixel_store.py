"""Keeps the pixels of any number of pictures, few of them in memory and many in a file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import StorageError

Normal = NDArray[np.uint32]
Defective = NDArray[np.uint64]
Pixels = NDArray[np.unsignedinteger[Any]]


class PixelStore:
    """Keeps normal pixels in 4 bytes each and defective ones in 8, picture by picture."""

    def __init__(self, folder: Path | None, held: int) -> None:
        """More pixels than `held` are kept in a file in `folder` (None: the temporary folder)."""
        self._place = str(folder or "the temporary folder")
        with _storing(self._place):
            # The file has no name, so that even a killed process leaves nothing behind.
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._end = 0
        self._most_held = held
        self._held: list[tuple[Normal, Defective]] = []
        self._written: list[_Extent] = []
        self.normal = self.defective = 0

    @property
    def closed(self) -> bool:
        """Whether the pixels were let go."""
        return self._file.closed

    def close(self) -> None:
        """Let the pixels go, and their file with them."""
        self._file.close()
        self._held.clear()

    def add(self, normal: Normal, defective: Defective) -> None:
        """Keep the pixels of one more picture, or raise StorageError and keep none of them."""
        total = self.normal + self.defective + normal.size + defective.size
        if self._end or total > self._most_held:
            while self._held:
                self._write(*self._held[-1])
                self._held.pop()  # after the write, so that a full disk loses nothing
            self._write(normal, defective)
        else:
            self._held.append((normal, defective))
        self.normal += normal.size
        self.defective += defective.size

    def normal_pixels(self) -> Iterator[Normal]:
        """Yield the normal pixels of one picture after the other, in any order of pictures."""
        yield from (normal for normal, _ in self._held)
        for extent in self._written:
            yield np.frombuffer(self._read(extent.offset, 4 * extent.normal), np.uint32)

    def defective_pixels(self) -> Iterator[Defective]:
        """Yield the defective pixels of one picture after the other."""
        yield from (defective for _, defective in self._held)
        for extent in self._written:
            offset = extent.offset + 4 * extent.normal
            yield np.frombuffer(self._read(offset, 8 * extent.defective), np.uint64)

    def _write(self, normal: Normal, defective: Defective) -> None:
        """Append a picture; it counts only after all of it is written."""
        extent = _Extent(self._end, normal.size, defective.size)
        pieces: tuple[Pixels, ...] = (normal, defective)
        with _storing(self._place):
            self._file.seek(self._end)
            for piece in pieces:
                left = piece.view(np.uint8).data
                while left:
                    left = left[self._file.write(left) :]
        self._written.append(extent)
        self._end += normal.nbytes + defective.nbytes

    def _read(self, offset: int, wanted: int) -> bytes:
        with _storing(self._place):
            data = os.pread(self._file.fileno(), wanted, offset)
            if len(data) != wanted:
                raise OSError(f"{len(data)} of {wanted} bytes could be read back")
        return data


class _Extent(NamedTuple):
    """The place in the file of the pixels of one picture: the normal ones, then the others."""

    offset: int
    normal: int
    defective: int


@contextlib.contextmanager
def _storing(place: str) -> Iterator[None]:
    """Turn an operating-system error about the pixel file into a StorageError."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(
            f"cannot keep pixels in {place}: {reason}",
            hint="free some space there or give another folder",
        ) from None
