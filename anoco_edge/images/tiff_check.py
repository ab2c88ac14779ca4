"""Check the tags of a TIFF file or an EXIF block, and the strips of a TIFF file.

The tags are checked before Pillow reads them: it copies the value of each tag, so a small file
whose tags all point at the same megabytes would take any amount of memory. The strips are checked
because libtiff reports success for damaged JPEG, fax and deflate strips.
"""

from __future__ import annotations

import ctypes
import io
import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any

from PIL import ImageFile

from anoco_edge.images.jpeg_check import UncheckableError, check_jpeg

_BYTES_OF_TYPE = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)
_STRIPS, _TILES = (273, 279), (324, 325)  # the tags that hold offsets and lengths
_JPEG_TABLES = 347
_DEFLATE = ("tiff_adobe_deflate", "tiff_deflate")
_MOST_PIXEL_BYTES = 64  # four channels of 64 bits, twice, for tiles that reach over the edge
_UNCHECKED = {
    **dict.fromkeys(("tiff_ccitt", "group3", "group4"), "fax compression"),
    "tiff_jpeg": "old-style JPEG compression",
}

# Pillow prints a warning about a cut file or EXIF block; what matters of it is raised as well.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.TiffImagePlugin")


def check_tags(file: IO[bytes]) -> None:
    """Raise ValueError when the tags of the first directory claim more bytes than the file has.

    >>> one_tag = struct.pack("<2sHLHHHLL", b"II", 42, 8, 1, 305, 1, 100_000_000, 0)
    >>> check_tags(io.BytesIO(one_tag))
    Traceback (most recent call last):
    ValueError: its tags claim more than the file has
    """
    size = file.seek(0, io.SEEK_END)
    if sum(_tag_sizes(file)) > size:
        raise ValueError("its tags claim more than the file has")
    file.seek(0)


@cache
def silence_libtiff() -> None:
    """Keep libtiff from printing lines of its own to stderr; the exception says what is wrong.

    Pillow has no function for this, so the library that it has loaded is asked, once. Where none
    is found, as where Pillow is linked to it statically, the lines stay.

    >>> silence_libtiff()
    """
    try:
        mapped = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return
    paths = {line.partition("/")[2] for line in mapped if "/libtiff" in line}
    for path in paths:
        try:
            # RTLD_NOLOAD gives the library that is in use and never loads another one.
            library = ctypes.CDLL(f"/{path}", os.RTLD_NOLOAD | os.RTLD_LAZY)
            handlers = (library.TIFFSetErrorHandler, library.TIFFSetWarningHandler)
        except (OSError, AttributeError):
            continue
        for set_handler in handlers:
            set_handler.restype = ctypes.c_void_p
            set_handler(None)


def check_strips(image: ImageFile.ImageFile, file: IO[bytes]) -> None:
    """Raise ValueError for damaged JPEG and deflate strips.

    libtiff stops a deflate stream where the pixels are complete, before its checksum. A compression
    whose damage cannot be detected raises UncheckableError, also a ValueError.
    """
    compression = image.info.get("compression")
    if compression in _UNCHECKED:
        raise UncheckableError(f"has {_UNCHECKED[compression]}")
    tags: Any = image.tag_v2  # type: ignore[attr-defined]
    if compression == "jpeg":
        tables = tags.get(_JPEG_TABLES, b"")
        for strip in _strips(tags, file):
            # The tables are a JPEG of their own. The end marker of the tables and the start marker
            # of the strip are removed, which makes one JPEG of both.
            check_jpeg(tables[:-2] + strip[2:] if tables else strip)
    elif compression in _DEFLATE:
        largest = max(image.width * image.height, tags.get(322, 1) * tags.get(323, 1))
        for strip in _strips(tags, file):
            _check_deflate(strip, _MOST_PIXEL_BYTES * largest)


def _strips(tags: Any, file: IO[bytes]) -> Iterator[bytes]:
    """Read the strips or tiles of a picture, one after the other."""
    places, lengths = _STRIPS if _STRIPS[0] in tags else _TILES
    for place, length in zip(tags[places], tags[lengths], strict=True):
        file.seek(place)
        yield file.read(length)


def _check_deflate(strip: bytes, most: int) -> None:
    """Raise ValueError for a strip that is not a whole zlib stream or holds more than `most`.

    >>> _check_deflate(zlib.compress(b"pixels"), 6)
    >>> _check_deflate(zlib.compress(b"pixels")[:-1], 6)
    Traceback (most recent call last):
    ValueError: a strip is damaged
    """
    stream, rest, length = zlib.decompressobj(), strip, 0
    try:
        while not stream.eof:
            piece = stream.decompress(rest, 1 << 20)
            rest, length = stream.unconsumed_tail, length + len(piece)
            if length > most or not (piece or rest or stream.eof):
                raise ValueError("a strip is damaged")
    except zlib.error as error:
        raise ValueError(f"a strip is damaged: {error}") from None


def _tag_sizes(file: IO[bytes]) -> Iterator[int]:
    """Yield the number of bytes that the value of each tag takes outside its directory entry.

    A value that fits into its entry takes 0 bytes.
    """
    file.seek(0)
    header = file.read(16)
    order = "<" if header[:2] == b"II" else ">"
    big = header[2:4] in (b"\x2b\0", b"\0\x2b")
    (start,) = (
        struct.unpack(order + "Q", header[8:]) if big else struct.unpack(order + "L", header[4:8])
    )
    file.seek(start)
    number_format, entry_format = ("Q", "HHQQ") if big else ("H", "HHLL")
    wide = struct.calcsize(order + number_format)
    (number,) = struct.unpack(order + number_format, file.read(wide))
    entry = struct.Struct(order + entry_format)
    inside = 8 if big else 4
    for _ in range(min(number, 0xFFFF)):
        data = file.read(entry.size)
        if len(data) < entry.size:
            return
        _, kind, count, _ = entry.unpack(data)
        taken = count * (_BYTES_OF_TYPE[kind] if kind < len(_BYTES_OF_TYPE) else 1)
        yield taken if taken > inside else 0
