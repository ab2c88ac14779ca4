"""Finds damage in H.264 and HEVC packets without decoding them.

An arithmetic decoder takes any bytes: zeros in the middle of a picture are decoded to some picture,
and half of the time FFmpeg finds nothing wrong with it. But an encoder never writes two zero bytes
followed by 0, 1 or 2 within a unit (it puts a 3 between them), so a block of zeros is damage.
"""

from __future__ import annotations

import re
from typing import Any

_CODECS = frozenset({"h264", "hevc"})
# A unit ends with a bit that is set; some writers leave the first zero of a start code after it.
_IN_UNIT = re.compile(rb"\x00\x00(?:[\x00-\x02]|\Z)", re.DOTALL)
# Between start codes there may be any number of zeros, as padding.
_BETWEEN_START_CODES = re.compile(rb"\x00\x00(?:\x02|\x00+[^\x00\x01])", re.DOTALL)


class NalCheck:
    """Checks the packets of one stream; `extradata` is what its container says about the codec.

    >>> check = NalCheck("h264", bytes([1, 0, 0, 0, 0xFF]))  # units with their length in 4 bytes
    >>> check.broken(bytes([0, 0, 0, 5, 0x65, 9, 0, 0, 3]))
    False
    >>> check.broken(bytes([0, 0, 0, 5, 0x65, 0, 0, 0, 3])), check.broken(bytes([0, 0, 0, 9, 0x65]))
    (True, True)
    """

    def __init__(self, codec: str, extradata: bytes | None) -> None:
        self._applies = codec in _CODECS
        self._length_bytes = _length_bytes(codec, extradata or b"")

    def broken(self, packet: Any) -> bool:
        """Whether a packet (anything with a buffer) cannot be what an encoder wrote."""
        if not self._applies:
            return False
        data = bytes(packet)
        if not self._length_bytes:
            return _BETWEEN_START_CODES.search(data) is not None
        at = 0
        while at < len(data):
            begin = at + self._length_bytes
            at = begin + int.from_bytes(data[at:begin], "big")
            if at > len(data) or at == begin or _IN_UNIT.search(data, begin, at):
                return True
        return False


def _length_bytes(codec: str, extradata: bytes) -> int:
    """How many bytes the length before each unit has; 0 where start codes separate them."""
    place = 4 if codec == "h264" else 21
    if len(extradata) <= place or extradata[0] != 1:
        return 0
    return (extradata[place] & 3) + 1
