"""Reading the ignore mask of a product: a complete PNG file without an EXIF orientation.

The native reader (runtime/src/bundle/png.cpp) makes the same checks. Pillow gets only the chunks
that hold the picture, so that no other chunk can change which pixels are inspected.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.errors import BundleError, PictureError
from anoco_edge.images.decode import check_size, decode_picture

Mask = NDArray[np.bool_]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE = 3
_SAMPLES = {0: 1, 2: 3, _PALETTE: 1, 4: 2, 6: 4}  # samples of a pixel, by PNG color type
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), _PALETTE: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_WHITE = 127  # pixels above this value are set
_LAST_FILTER = 4
_AGAIN = "set the `mask` of the product again: anoco-edge product set"
_TURNING = {b"exif", b"Raw profile type exif", b"XML:com.adobe.xmp"}


def decode_mask(data: bytes, name: str) -> Mask:
    """Decode a mask: True where a pixel is white, which means that it is ignored.

    >>> file = io.BytesIO()
    >>> Image.new("L", (16, 20), 255).save(file, "PNG")
    >>> decode_mask(file.getvalue(), "mask.png").shape
    (20, 16)
    """
    if not data.startswith(_SIGNATURE):
        _refuse(name, "is not a PNG file")
    header, palette, packed = _parts(data, name)
    _check_rows(header, packed, name)
    chunks = [_chunk(b"IHDR", header), _chunk(b"IDAT", packed), _chunk(b"IEND", b"")]
    if header[9] == _PALETTE:
        chunks.insert(1, _chunk(b"PLTE", palette))
    picture = _SIGNATURE + b"".join(chunks)
    if header[9] == _PALETTE:
        _check_colors(picture, len(palette) // 3, name)
    mask: Mask = decode_picture(picture, name).max(axis=2) > _WHITE
    return mask


def _parts(data: bytes, name: str) -> tuple[bytes, bytes, bytes]:
    """Split a PNG file into its header, its palette and its compressed pixels."""
    header = palette = packed = b""
    before = b""
    for kind, content in _chunks(data[len(_SIGNATURE) :], name):
        if (kind == b"IHDR") != (before == b""):
            _refuse(name, "is damaged: its header is not where it should be")
        if kind == b"IHDR":
            header = content
            _check_header(header, name)
        elif kind == b"PLTE":
            if palette or packed:
                _refuse(name, "is damaged: its palette is not where it should be")
            if len(content) % 3 or len(content) > 3 * 256:
                _refuse(name, "has a damaged palette")
            palette = content
        elif kind == b"IDAT":
            if packed and before != b"IDAT":
                _refuse(name, "is damaged: its data is in pieces")
            packed += content
        elif kind == b"eXIf" or (kind in (b"tEXt", b"zTXt", b"iTXt") and _turns(content)):
            _refuse(name, "may have to be turned: it has EXIF data")
        elif not kind[0] & 0x20:
            _refuse(name, f"has the unknown chunk {kind.decode('latin-1')!r}")
        before = kind
    return header, palette, packed


def _chunks(rest: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while True:
        if len(rest) - at < 12:
            _refuse(name, "is damaged or incomplete")
        (length,) = struct.unpack_from(">I", rest, at)
        end = at + 8 + length
        if length > len(rest) - at - 12:
            _refuse(name, "is damaged or incomplete")
        if struct.unpack_from(">I", rest, end)[0] != zlib.crc32(rest[at + 4 : end]):
            _refuse(name, "is damaged: a checksum differs")
        kind = rest[at + 4 : at + 8]
        if kind == b"IEND":
            if at == 0:
                _refuse(name, "is damaged: its header is not where it should be")
            return
        yield kind, rest[at + 8 : end]
        at = end + 4


def _turns(content: bytes) -> bool:
    """Whether Pillow would look for an orientation in this text chunk."""
    return content.partition(b"\0")[0] in _TURNING


def _check_header(header: bytes, name: str) -> None:
    if len(header) != 13:
        _refuse(name, "is damaged: its header has another length")
    width, height, bits, color_type, packing, filters, interlaced = struct.unpack(
        ">IIBBBBB", header
    )
    if bits not in _DEPTHS.get(color_type, ()) or packing or filters:
        _refuse(name, "has an unknown format")
    if interlaced:
        _refuse(name, "is interlaced")
    try:
        check_size(width, height, name)
    except PictureError as error:
        raise BundleError(f"{error.what}: {error.hint}", hint=_AGAIN) from None


def _check_rows(header: bytes, packed: bytes, name: str) -> None:
    """Check that the compressed data holds every row with a known filter, and nothing more."""
    width, height, bits, color_type = struct.unpack_from(">IIBB", header)
    line = 1 + (width * _SAMPLES[color_type] * bits + 7) // 8
    unpacker = zlib.decompressobj()
    try:
        rows = unpacker.decompress(packed, height * line + 1)
    except zlib.error:
        _refuse(name, "is damaged or incomplete")
    if len(rows) != height * line or not unpacker.eof or unpacker.unused_data:
        _refuse(name, "is damaged or incomplete")
    if max(rows[::line]) > _LAST_FILTER:
        _refuse(name, "is damaged: it has an unknown filter")


def _check_colors(picture: bytes, colors: int, name: str) -> None:
    """Check that the palette has every color that a pixel names."""
    if colors:  # Pillow does not open a picture without a palette
        with Image.open(io.BytesIO(picture), formats=["PNG"]) as image:
            if int(np.asarray(image).max()) < colors:
                return
    _refuse(name, "is damaged: it names colours that it does not have")


def _chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def _refuse(name: str, why: str) -> NoReturn:
    raise BundleError(f"{name} {why}", hint=_AGAIN)
