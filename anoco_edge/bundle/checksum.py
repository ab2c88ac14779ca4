"""The checksum that each of the two JSON documents of a bundle carries of itself.

A document carries the SHA-256 of its own bytes, taken with the 64 digits of the checksum
written as zeros. No canonical JSON is needed to check it, so any language can.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from anoco_edge.storage.hashes import sha256_bytes

_ZEROS = b"0" * 64
_FIELD = re.compile(rb'"checksum": "([0-9a-f]{64})"')


def seal(document: Mapping[str, object]) -> bytes:
    """Serialize `document` as JSON and fill in its checksum.

    >>> is_sealed(seal({"checksum": "", "a": 1}))
    True
    >>> is_sealed(seal({"checksum": "", "a": 1}).replace(b"1", b"2"))
    False
    """
    text = json.dumps({**document, "checksum": "0" * 64}, indent=1, ensure_ascii=False)
    raw = (text + "\n").encode()
    return _FIELD.sub(b'"checksum": "' + sha256_bytes(raw).encode() + b'"', raw, count=1)


def is_sealed(raw: bytes) -> bool:
    """Whether the bytes are those that `seal` wrote."""
    match = _FIELD.search(raw)
    if match is None:
        return False
    zeroed = raw[: match.start(1)] + _ZEROS + raw[match.end(1) :]
    return sha256_bytes(zeroed).encode() == match.group(1)


def carried_checksum(raw: bytes) -> str:
    """Return the checksum that a document carries, unchecked; empty if it carries none.

    >>> len(carried_checksum(seal({"checksum": "", "a": 1})))
    64
    """
    match = _FIELD.search(raw)
    return match.group(1).decode() if match else ""
