"""Check that a JPEG is complete.

Pillow does not: libjpeg fills in the missing part and warns, and Pillow drops the warnings.

The check has two parts. The first part walks through the markers, because a progressive JPEG
without its last scans is decoded without a warning. In the second part, libjpeg-turbo decodes the
picture at one eighth of its size and treats each warning as an error. This reads all
entropy-coded data and computes few pixels.

JPEG has no checksums, so the check misses damage that leaves a valid stream of the right length.
That is about every second flipped bit, and a loss inside the last scans of a progressive JPEG,
which refine the picture.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import simplejpeg

MAX_SCANS = 100  # encoders write about ten; thousands of empty ones take hours to decode

_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_ALONE = frozenset({0x01, _SOI, *range(0xD0, 0xD8)})  # markers without a segment
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
# In entropy-coded data, FF is followed by 00 or by the second byte of a restart marker.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_COEFFICIENTS = 64


class UncheckableError(ValueError):
    """A picture whose completeness cannot be checked.

    A decoder would fill in a missing part of it without an error.
    """


@dataclass
class _Scans:
    """The scans found so far, and the low bits that each coefficient of each component lacks.

    A coefficient with 0 missing bits is complete.
    """

    progressive: bool
    missing_bits: dict[int, list[int]]
    count: int = field(default=0)

    def add(self, segment: bytes) -> None:
        self.count += 1
        if self.count > MAX_SCANS:
            raise ValueError(f"it has more than {MAX_SCANS} scans")
        components = segment[1 : 1 + 2 * segment[0] : 2]
        first, last, precision = segment[1 + 2 * segment[0] :][:3]
        if not self.progressive:
            first, last, precision = 0, _COEFFICIENTS - 1, 0
        for component in components:
            if component in self.missing_bits and first <= last < _COEFFICIENTS:
                bits = self.missing_bits[component]
                bits[first : last + 1] = [precision & 15] * (last + 1 - first)

    def check_complete(self) -> None:
        if any(any(bits) for bits in self.missing_bits.values()):
            raise ValueError("scans are missing at its end")


def check_jpeg(data: bytes) -> None:
    """Raise ValueError when a JPEG is incomplete or its decoder would fill in or guess pixels.

    The error is an UncheckableError for subsampling that libjpeg-turbo's strict interface does not
    support, such as that of CMYK pictures with fewer chroma samples. Cameras do not use it. Bytes
    after the end marker are allowed, because cameras pad their files and some append a second
    picture.

    >>> check_jpeg(b"\\xff\\xd8\\xff\\xd9")
    Traceback (most recent call last):
    ValueError: it has no picture
    """
    _check_scans(data)
    try:
        # At 1/8 of the size a block becomes one pixel, and grey needs no conversion of colors.
        simplejpeg.decode_jpeg(
            data, colorspace="GRAY", min_height=1, min_width=1, min_factor=8, strict=True
        )
    except ValueError as exc:
        if "subsampling" in str(exc):
            raise UncheckableError("has an unusual subsampling") from None
        raise


def _check_scans(data: bytes) -> None:
    scans: _Scans | None = None
    position = 2
    while found := _NEXT_MARKER.search(data, position):
        marker, position = data[found.end() - 1], found.end()
        if marker == _EOI:
            break
        if marker in _ALONE:
            continue
        length = int.from_bytes(data[position : position + 2], "big")
        segment = data[position + 2 : position + length]
        position += length
        if length < 2 or len(segment) != length - 2:
            raise ValueError("it ends inside its header")
        if marker in _FRAMES:
            scans = _frame(marker, segment)
        elif marker == _SOS and scans is not None:
            scans.add(segment)
    else:
        raise ValueError("it has no end")
    if scans is None or not scans.count:
        raise ValueError("it has no picture")
    scans.check_complete()


def _frame(marker: int, segment: bytes) -> _Scans:
    names = segment[6 : 6 + 3 * segment[5] : 3]
    return _Scans(marker in _PROGRESSIVE, {name: [16] * _COEFFICIENTS for name in names})
