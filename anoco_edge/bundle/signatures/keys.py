"""Key pairs in the format of minisign: Ed25519, the secret key under a password or in the clear.

A password is stretched by scrypt with the cost that the file names, which is libsodium's highest
for new keys: 1 GiB of memory for a second or two.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import struct
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from anoco_edge.bundle.signatures.signature import (
    Signature,
    decode,
    fits_comment,
    key_number,
    not_minisign,
)
from anoco_edge.errors import (
    EnvironmentMissingError,
    SignatureError,
    UsageError,
    missing,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MOST_BYTES = 4096
OPS_LIMIT, MEM_LIMIT = 1 << 25, 1 << 30  # crypto_pwhash_*_SENSITIVE of libsodium
_MOST_MEMORY = 2**31 - 1  # what hashlib accepts
_ALGORITHM, _SCRYPT, _NO_KDF, _BLAKE2B = b"Ed", b"Sc", b"\0\0", b"B2"
_FILE = struct.Struct("<2s2s2s32sQQ104s")
_SECRET = struct.Struct("<8s32s32s32s")  # number, seed, public key, checksum
_COMMENT = "untrusted comment: "


@dataclass(frozen=True)
class PublicKey:
    """A public key, which verifies signatures.

    >>> key = PublicKey.parse("RWTTMJRD1HPm16OCz1FPbAGKkAWewKYGHoEiBeWtcQItZZUNudXpFeD+", "a.pub")
    >>> key.number
    'D7E673D4439430D3'
    """

    key_id: bytes
    value: bytes

    @classmethod
    def parse(cls, text: str, name: str) -> PublicKey:
        """Read a public key: the content of its file, or its second line alone, as for -P of
        minisign. `name` is its name in errors."""
        lines = text.split("\n")
        line = lines[1] if text.startswith(_COMMENT) and len(lines) > 1 else lines[0]
        if len(line.strip()) > 100:
            raise UsageError(
                f"{name} is a secret key, or no key at all", hint="name the file of the public key"
            )
        try:
            body = decode(line.strip(), 42, name, "a public key")
        except SignatureError as error:
            raise UsageError(error.what, hint=error.hint) from None
        if body[:2] != _ALGORITHM:
            raise UsageError(f"{name} is not an Ed25519 key", hint="make one with minisign -G")
        return cls(body[2:10], body[10:])

    @property
    def number(self) -> str:
        """The number of the key, as minisign writes it."""
        return key_number(self.key_id)

    @property
    def line(self) -> str:
        """The key in one line, as station.toml and -P of minisign take it."""
        return base64.b64encode(_ALGORITHM + self.key_id + self.value).decode()

    def to_text(self) -> str:
        """Return the content of the key's file."""
        return f"{_COMMENT}minisign public key {self.number}\n{self.line}\n"

    def verify(self, data: bytes, signature: Signature) -> bool:
        """Whether this key made the signature over the data, and its trusted comment."""
        key = _ed25519().Ed25519PublicKey.from_public_bytes(self.value)
        if signature.key_id != self.key_id:
            return False
        try:
            key.verify(signature.value, hashlib.blake2b(data).digest())
            key.verify(signature.comment_value, signature.signed_comment)
        except _invalid_signature():
            return False
        return True


@dataclass(frozen=True, repr=False)
class SecretKey:
    """A secret key, which signs."""

    key_id: bytes
    seed: bytes

    @classmethod
    def generate(cls) -> SecretKey:
        """Make a new key with a random number."""
        _ed25519()
        return cls(os.urandom(8), os.urandom(32))

    @classmethod
    def parse(cls, text: str, name: str, password: str | None = None) -> SecretKey:
        """Read the file of a secret key; one under a password needs it. `name` is its name in
        errors."""
        lines = text.split("\n")
        if not text.startswith(_COMMENT) or len(lines) < 2:
            raise _no_secret_key(name)
        try:
            body = decode(lines[1].strip(), _FILE.size, name, "a secret key")
        except SignatureError:
            raise _no_secret_key(name) from None
        algorithm, kdf, checksum, salt, ops, mem, held = _FILE.unpack(body)
        if (algorithm, checksum) != (_ALGORITHM, _BLAKE2B) or kdf not in (_SCRYPT, _NO_KDF):
            raise _no_secret_key(name)
        if kdf == _SCRYPT:
            if password is None:
                raise UsageError(f"{name} has a password", hint="give it when you are asked")
            held = _exclusive_or(held, _stretch(password, salt, ops, mem, name))
        key_id, seed, public, written = _SECRET.unpack(held)
        key = cls(key_id, seed)
        summed = kdf == _NO_KDF or hmac.compare_digest(written, _checksum(key_id, seed, public))
        if not summed or public != key.public.value:
            why = "has another password, or is damaged" if kdf == _SCRYPT else "is damaged"
            raise UsageError(f"{name} {why}", hint="try again, or use a copy of the key")
        return key

    @property
    def public(self) -> PublicKey:
        """The public key that belongs to this key."""
        return PublicKey(self.key_id, self._private().public_key().public_bytes_raw())

    def to_text(self, password: str = "", *, ops: int = OPS_LIMIT, mem: int = MEM_LIMIT) -> str:
        """Return the content of the key's file; without a password it is in the clear, as that of
        `minisign -G -W`."""
        public = self.public.value
        if password:
            kdf, salt = _SCRYPT, os.urandom(32)
            plain = _SECRET.pack(
                self.key_id, self.seed, public, _checksum(self.key_id, self.seed, public)
            )
            held = _exclusive_or(plain, _stretch(password, salt, ops, mem, "the new key"))
        else:
            kdf, salt, ops, mem = _NO_KDF, bytes(32), 0, 0
            held = _SECRET.pack(self.key_id, self.seed, public, bytes(32))
        body = _FILE.pack(_ALGORITHM, kdf, _BLAKE2B, salt, ops, mem, held)
        return f"{_COMMENT}minisign encrypted secret key\n{base64.b64encode(body).decode()}\n"

    def sign(self, data: bytes, comment: str) -> Signature:
        """Sign data and a trusted comment."""
        if not fits_comment(comment):
            raise UsageError("a trusted comment is one line of at most 8191 bytes", hint="shorten")
        key = self._private()
        value = key.sign(hashlib.blake2b(data).digest())
        return Signature(self.key_id, value, comment, key.sign(value + comment.encode()))

    def _private(self) -> Ed25519PrivateKey:
        key: Ed25519PrivateKey = _ed25519().Ed25519PrivateKey.from_private_bytes(self.seed)
        return key


def needs_password(text: str) -> bool:
    """Whether the text is the file of a secret key that has a password.

    >>> needs_password("untrusted comment: minisign public key\\nRWTTMJRD1HPm16OC")
    False
    """
    line = text.split("\n")[1] if text.count("\n") else ""
    return line.startswith(base64.b64encode(_ALGORITHM + _SCRYPT + _BLAKE2B).decode())


def _stretch(password: str, salt: bytes, ops: int, mem: int, name: str) -> bytes:
    n, r, p = _scrypt_cost(ops, mem)
    try:
        return hashlib.scrypt(
            password.encode(), salt=salt, n=n, r=r, p=p, maxmem=_MOST_MEMORY, dklen=_SECRET.size
        )
    except (ValueError, MemoryError):
        raise EnvironmentMissingError(
            f"the password of {name} takes {128 * n * r // 2**20} MB of memory",
            hint="use a machine with more memory, or a key without a password",
        ) from None


def _scrypt_cost(ops: int, mem: int) -> tuple[int, int, int]:
    """Return N, r and p, which libsodium (pickparams of scrypt) makes of its two limits.

    >>> _scrypt_cost(OPS_LIMIT, MEM_LIMIT), _scrypt_cost(32768, 1 << 24)
    ((1048576, 8, 1), (1024, 8, 1))
    """
    ops, r = max(ops, 32768), 8
    if ops < mem // 32:
        return _power(ops // (4 * r)), r, 1
    n = _power(mem // (128 * r))
    return n, r, max(min(ops // 4 // n, 0x3FFFFFFF) // r, 1)


def _power(most: int) -> int:
    """Return the first power of two from 2 on that is over half of a number."""
    return int(max(2, 1 << (most // 2).bit_length()))


def _checksum(key_id: bytes, seed: bytes, public: bytes) -> bytes:
    data = _ALGORITHM + key_id + seed + public
    return hashlib.blake2b(data, digest_size=32).digest()


def _exclusive_or(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def _no_secret_key(name: str) -> UsageError:
    error = not_minisign(name, "a secret key")
    return UsageError(error.what, hint="make one with: anoco-edge sign `new_key=NAME`")


def _ed25519() -> ModuleType:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise missing("cryptography", "sign", "to sign and verify bundles") from None
    return ed25519


def _invalid_signature() -> type[Exception]:
    from cryptography.exceptions import InvalidSignature

    return InvalidSignature
