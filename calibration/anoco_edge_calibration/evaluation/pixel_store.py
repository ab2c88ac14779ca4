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

Values = NDArray[np.uint32]
Defective = NDArray[np.uint64]
Stored = NDArray[np.unsignedinteger[Any]]


class PixelStore:
    """Keeps all pixels in 4 bytes each and the defective ones in 8 more, picture by picture."""

    def __init__(self, folder: Path | None, held: int) -> None:
        """More pixels than `held` are kept in a file in `folder` (None: the temporary folder)."""
        self._place = str(folder or "the temporary folder")
        with _storing(self._place):
            # The file has no name, so that even a killed process leaves nothing behind.
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._end = 0
        self._most_held = held
        self._held: list[tuple[Values, Defective]] = []
        self._written: list[_Extent] = []
        self.pixels = self.defective = 0

    @property
    def closed(self) -> bool:
        """Whether the pixels were let go."""
        return self._file.closed

    def close(self) -> None:
        """Let the pixels go, and their file with them."""
        self._file.close()
        self._held.clear()

    def add(self, pixels: Values, defective: Defective) -> None:
        """Keep the pixels of one more picture, or raise StorageError and keep none of them."""
        if self._end or self.pixels + pixels.size > self._most_held:
            while self._held:
                self._write(*self._held[-1])
                self._held.pop()  # after the write, so that a full disk loses nothing
            self._write(pixels, defective)
        else:
            self._held.append((pixels, defective))
        self.pixels += pixels.size
        self.defective += defective.size

    def all_pixels(self) -> Iterator[Values]:
        """Yield the pixels of one picture after the other, in any order of pictures."""
        yield from (pixels for pixels, _ in self._held)
        for extent in self._written:
            yield np.frombuffer(self._read(extent.offset, 4 * extent.pixels), np.uint32)

    def defective_pixels(self) -> Iterator[Defective]:
        """Yield the defective pixels of one picture after the other."""
        yield from (defective for _, defective in self._held)
        for extent in self._written:
            offset = extent.offset + 4 * extent.pixels
            yield np.frombuffer(self._read(offset, 8 * extent.defective), np.uint64)

    def _write(self, pixels: Values, defective: Defective) -> None:
        """Append a picture; it counts only after all of it is written."""
        extent = _Extent(self._end, pixels.size, defective.size)
        pieces: tuple[Stored, ...] = (pixels, defective)
        with _storing(self._place):
            self._file.seek(self._end)
            for piece in pieces:
                left = piece.view(np.uint8).data
                while left:
                    left = left[self._file.write(left) :]
        self._written.append(extent)
        self._end += pixels.nbytes + defective.nbytes

    def _read(self, offset: int, wanted: int) -> bytes:
        with _storing(self._place):
            data = os.pread(self._file.fileno(), wanted, offset)
            if len(data) != wanted:
                raise OSError(f"{len(data)} of {wanted} bytes could be read back")
        return data


class _Extent(NamedTuple):
    """The place in the file of the pixels of one picture: all, then the defective ones again."""

    offset: int
    pixels: int
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
