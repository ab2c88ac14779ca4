"""A signature file of minisign: Ed25519 over the BLAKE2b-512 of a file, with a trusted comment.

Four lines: an untrusted comment, the signature, a trusted comment, and a second signature over the
first one and the trusted comment. Signatures that do not hash the file first, which minisign made
before its version 0.10, are refused.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from anoco_edge.errors import SignatureError

MOST_BYTES = 1 << 14
PREHASHED = b"ED"
_LEGACY = b"Ed"
_UNTRUSTED, _TRUSTED = "untrusted comment: ", "trusted comment: "
_MOST_COMMENT = 8192 - 1  # bytes, as minisign allows


@dataclass(frozen=True)
class Signature:
    """The content of a signature file; it says nothing before `PublicKey.verify` accepted it."""

    key_id: bytes
    value: bytes
    comment: str
    """The trusted comment."""
    comment_value: bytes

    @classmethod
    def parse(cls, raw: bytes, name: str) -> Signature:
        """Read a signature file; `name` is its name in errors.

        >>> Signature.parse(b"hello", "line.minisig")
        Traceback (most recent call last):
        anoco_edge.errors.SignatureError: line.minisig is not a signature of minisign; ...
        """
        lines = _lines(raw, name)
        if (
            len(lines) != 4
            or not lines[0].startswith(_UNTRUSTED)
            or not lines[2].startswith(_TRUSTED)
        ):
            raise not_minisign(name, "a signature")
        body = decode(lines[1], 74, name, "a signature")
        if body[:2] == _LEGACY:
            raise SignatureError(
                f"{name} signs the file itself and not its hash",
                hint="sign again with minisign 0.10 or later, without -l",
            )
        if body[:2] != PREHASHED:
            raise not_minisign(name, "a signature")
        comment = lines[2].removeprefix(_TRUSTED)
        return cls(body[2:10], body[10:], comment, decode(lines[3], 64, name, "a signature"))

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        body = base64.b64encode(PREHASHED + self.key_id + self.value).decode()
        lines = (
            f"{_UNTRUSTED}verify with minisign and key {key_number(self.key_id)}",
            body,
            f"{_TRUSTED}{self.comment}",
            base64.b64encode(self.comment_value).decode(),
        )
        return "".join(f"{line}\n" for line in lines).encode()

    @property
    def signed_comment(self) -> bytes:
        """The bytes that the second signature signs."""
        return self.value + self.comment.encode()


def key_number(key_id: bytes) -> str:
    """Return the number of a key as minisign writes it.

    >>> key_number(bytes.fromhex("d3309443d473e6d7"))
    'D7E673D4439430D3'
    """
    return key_id[::-1].hex().upper()


def fits_comment(text: str) -> bool:
    """Whether a text can be a trusted comment: one line without control characters but tabs.

    >>> fits_comment("timestamp:1\\tfile:a"), fits_comment("two\\nlines")
    (True, False)
    """
    return text.replace("\t", " ").isprintable() and len(text.encode()) <= _MOST_COMMENT


def decode(line: str, size: int, name: str, what: str) -> bytes:
    """Decode a line of base64 that holds `size` bytes."""
    try:
        body = base64.b64decode(line.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise not_minisign(name, what) from None
    if len(body) != size:
        raise not_minisign(name, what)
    return body


def not_minisign(name: str, what: str) -> SignatureError:
    """Make the error for a file that is not what minisign writes."""
    return SignatureError(f"{name} is not {what} of minisign", hint="name the right file")


def _lines(raw: bytes, name: str) -> list[str]:
    if len(raw) > MOST_BYTES:
        raise not_minisign(name, "a signature")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise not_minisign(name, "a signature") from None
    # Not splitlines(), which also breaks at characters that a comment may hold.
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
