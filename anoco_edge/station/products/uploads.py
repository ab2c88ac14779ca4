"""Files that people send: pictures of good parts, kept below the folder of the station until used.

A picture is decoded here before it is kept, with a limit that is checked in its header, so that
neither a small file that claims a billion pixels nor a damaged one gets any further.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from pathlib import Path

from anoco_edge.errors import PictureError, UsageError
from anoco_edge.images.decode import header_size
from anoco_edge.storage.atomic_files import write_atomic, writing
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching import NewPicture

FOLDER = "uploads"
MOST_BYTES = 64_000_000
MOST_PIXELS = 50_000_000
KEEP_SECONDS = 7 * 86_400.0
_NAME = re.compile(r"[0-9a-f]{32}")
_decoding = threading.Lock()  # one at a time: a large picture takes hundreds of megabytes


class Uploads:
    """Pictures below `folder`, each in a file that is named after its content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def add(self, data: bytes, name: str) -> str:
        """Check a picture and keep it; return its digest, by which it is found again."""
        check_picture(data, name)
        self.sweep()
        digest = sha256_bytes(data)[:32]
        with writing(str(self._folder)):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self._folder / digest, data)
        return digest

    def read(self, digest: str) -> bytes:
        """Return a picture that was added."""
        path = self._path(digest)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise UsageError(
                f"there is no upload {digest}", hint="send the picture again"
            ) from None

    def picture(self, digest: str, name: str) -> NewPicture:
        """Return a picture that was added, for the teacher."""
        data = self.read(digest)
        return NewPicture.from_bytes(name, data)

    def sweep(self, now: float | None = None) -> int:
        """Delete uploads that are a week old; return their number."""
        oldest, gone = (time.time() if now is None else now) - KEEP_SECONDS, 0
        if not self._folder.is_dir():
            return 0
        for path in self._folder.iterdir():
            if path.stat().st_mtime >= oldest:
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            gone += 1
        return gone

    def _path(self, digest: str) -> Path:
        if not _NAME.fullmatch(digest):
            raise UsageError(f"{digest[:40]!r} is not an upload", hint="send the picture again")
        return self._folder / digest


def check_picture(data: bytes, name: str) -> None:
    """Refuse what is no picture, is damaged, or is larger than a station takes.

    >>> check_picture(b"GIF89a", "a.gif")
    Traceback (most recent call last):
    anoco_edge.errors.PictureError: a.gif is ...
    """
    if len(data) > MOST_BYTES:
        raise PictureError(
            f"{name} has {len(data) / 1e6:.0f} MB", hint=f"send at most {MOST_BYTES // 10**6} MB"
        )
    with _decoding:
        width, height = header_size(data, name)
        if width * height > MOST_PIXELS:
            raise PictureError(
                f"{name} is {width}x{height}, {width * height / 1e6:.0f} million pixels",
                hint=f"send at most {MOST_PIXELS // 10**6} million: cut or scale it first",
            )
        NewPicture.from_bytes(name, data)
