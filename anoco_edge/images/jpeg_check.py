"""Whether a JPEG is whole. libjpeg fills in what is missing and warns; Pillow drops the warnings.

The check has two parts. The markers are walked, because a progressive JPEG without its last scans
is decoded without a warning. Then libjpeg-turbo decodes at one eighth of the size, where each of
its warnings is an error: all entropy-coded data are read, and few pixels are computed.

JPEG has no checksums, so a change that leaves a valid stream of the right length is not seen. That
is about every second flipped bit, and a loss in the last scans of a progressive JPEG, which refine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import simplejpeg

MAX_SCANS = 100  # encoders write about ten; thousands of empty ones keep a decoder busy for hours

_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_ALONE = frozenset({0x01, _SOI, *range(0xD0, 0xD8)})  # markers without a segment
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
# In entropy-coded data FF is followed by 00, or by the number of a restart marker.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_COEFFICIENTS = 64


class UncheckableError(ValueError):
    """The picture may be whole, but nobody could tell: what is missing would be filled in."""


@dataclass
class _Scans:
    """How far each coefficient of each component was sent; 0 is to its last bit."""

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
    """Raise ValueError when a JPEG is incomplete or its decoder would fill in or guess.

    It is an UncheckableError for subsampling that libjpeg-turbo's strict interface does not know,
    such as that of CMYK pictures with fewer chroma samples; cameras do not use it. Bytes after the
    end marker are allowed: cameras pad their files, and some append a second picture.

    >>> check_jpeg(b"\\xff\\xd8\\xff\\xd9")
    Traceback (most recent call last):
    ValueError: it has no picture
    """
    _check_scans(data)
    try:
        # At 1/8 a block is one pixel; grey leaves out the conversion of colours.
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
