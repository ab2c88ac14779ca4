"""Check the tags of a TIFF file or an EXIF block, and the strips of a TIFF file.

The tags are checked before Pillow reads them: it copies the value of each tag, so a small file
whose tags all point at the same megabytes would take any amount of memory. The strips are checked
because libtiff prints a line about damaged JPEG and fax strips, fills them in and reports success.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import IO, Any

from PIL import ImageFile

from anoco_edge.images.jpeg_check import UncheckableError, check_jpeg

_BYTES_OF_TYPE = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)
_STRIPS, _TILES = (273, 279), (324, 325)  # the tags that hold offsets and lengths
_JPEG_TABLES = 347
_UNCHECKED = {
    **dict.fromkeys(("tiff_ccitt", "group3", "group4"), "fax compression"),
    "tiff_jpeg": "old-style JPEG compression",
}


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


def check_strips(image: ImageFile.ImageFile, file: IO[bytes]) -> None:
    """Raise ValueError for damaged JPEG strips.

    A compression whose damage cannot be detected raises UncheckableError, also a ValueError.
    """
    compression = image.info.get("compression")
    if compression in _UNCHECKED:
        raise UncheckableError(f"has {_UNCHECKED[compression]}")
    if compression == "jpeg":
        tags: Any = image.tag_v2  # type: ignore[attr-defined]
        tables = tags.get(_JPEG_TABLES, b"")
        places, lengths = _STRIPS if _STRIPS[0] in tags else _TILES
        for place, length in zip(tags[places], tags[lengths], strict=True):
            file.seek(place)
            strip = file.read(length)
            # The tables are a JPEG of their own. The end marker of the tables and the start marker
            # of the strip are removed, which makes one JPEG of both.
            check_jpeg(tables[:-2] + strip[2:] if tables else strip)


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
