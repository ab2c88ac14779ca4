"""Pictures as a page shows them: stored ones of the line, references of a bundle, small copies."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from anoco_edge.errors import BundleError, PictureError
from anoco_edge.images.decode import decode_picture
from anoco_edge.storage.beneath import Directory

WIDTHS = (160, 320, 640, 960, 1280, 1920)
"""The widths of copies; what is asked for is rounded up, so that a copy serves many pages."""
MOST_BYTES = 400_000_000
_QUALITY = 85
_CACHE_BYTES = 32_000_000
_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}


@dataclass(frozen=True)
class ShownPicture:
    """A picture file as it is sent to a browser."""

    data: bytes
    media_type: str


class Pictures:
    """Reads pictures below one folder and keeps copies that were asked for lately in memory.

    Links, special files and paths that lead out of the folder are refused.

    >>> Pictures(Path("/")).read("../etc/passwd")
    Traceback (most recent call last):
    anoco_edge.errors.PictureError: there is no picture ../etc/passwd; it was deleted, or never kept
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies: OrderedDict[tuple[str, int], ShownPicture] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()
        self._resizing = threading.Semaphore(2)  # at a time: the machine belongs to the line

    def read(self, path: str, width: int | None = None) -> ShownPicture:
        """Return a picture as it is stored, or a copy of about this width."""
        if width is None:
            return shown(self.original(path))
        key = (path, copy_width(width))
        with self._lock:
            if (known := self._copies.get(key)) is not None:
                self._copies.move_to_end(key)
                return known
        with self._resizing:
            made = resized(self.original(path), key[1], path)
        with self._lock:
            if key not in self._copies:
                self._copies[key] = made
                self._held += len(made.data)
            while self._held > _CACHE_BYTES:
                self._held -= len(self._copies.popitem(last=False)[1].data)
        return made

    def original(self, path: str) -> bytes:
        """Return the bytes of a picture file below the folder."""
        try:
            with Directory.open(self._folder) as folder:
                return folder.read(path, MOST_BYTES)
        except (OSError, BundleError, ValueError):
            raise PictureError(
                f"there is no picture {path}", hint="it was deleted, or never kept"
            ) from None


def copy_width(width: int) -> int:
    """Return the width of the copy that serves a page best.

    >>> copy_width(1), copy_width(500), copy_width(99999)
    (160, 640, 1920)
    """
    return next((each for each in WIDTHS if each >= width), WIDTHS[-1])


def shown(data: bytes) -> ShownPicture:
    """Return a picture file with its type; what a browser cannot show becomes a PNG."""
    kind = next((kind for begin, kind in _TYPES.items() if data.startswith(begin)), None)
    if kind is not None:
        return ShownPicture(data, kind)
    buffer = io.BytesIO()
    Image.fromarray(decode_picture(data, "the picture")).save(buffer, "PNG", compress_level=1)
    return ShownPicture(buffer.getvalue(), "image/png")


def resized(data: bytes, width: int, name: str) -> ShownPicture:
    """Return a JPEG of this width; a picture that is narrower already is sent as it is."""
    image = Image.fromarray(decode_picture(data, name))
    if image.width <= width:
        return shown(data)
    height = max(round(image.height * width / image.width), 1)
    buffer = io.BytesIO()
    copy = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    copy.save(buffer, "JPEG", quality=_QUALITY)
    return ShownPicture(buffer.getvalue(), "image/jpeg")
