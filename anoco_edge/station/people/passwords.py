"""Passwords and PINs: how they are stored, checked, and which are refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
from itertools import pairwise

from anoco_edge.errors import UsageError

SHORTEST_PASSWORD, LONGEST_PASSWORD = 10, 200
SHORTEST_PIN, LONGEST_PIN = 4, 12
COST = 2**15  # 32 MB and about 0.1 s for each try
_BLOCK, _LANES = 8, 1
_NOBODY = f"scrypt$%d${_BLOCK}${_LANES}${'A' * 24}${'A' * 43}="
_ONE_AT_A_TIME = threading.Semaphore(1)


class TooBusyError(Exception):
    """Too many passwords are being checked; the caller should try again later."""


def hash_secret(secret: str, cost: int | None = None) -> str:
    """Return what is stored of a password or PIN: scrypt with a salt of its own.

    >>> stored = hash_secret("correct horse", cost=2)
    >>> matches("correct horse", stored), matches("wrong horse", stored)
    (True, False)
    """
    salt, cost = secrets.token_bytes(16), cost or COST
    found = _scrypt(secret, salt, cost, _BLOCK, _LANES)
    parts = (base64.b64encode(each).decode() for each in (salt, found))
    return "$".join(("scrypt", str(cost), str(_BLOCK), str(_LANES), *parts))


def matches(secret: str, stored: str | None) -> bool:
    """Whether a password or PIN is the stored one; nothing stored takes as long to refuse.

    One is checked at a time. Whoever would wait longer than two seconds gets a TooBusyError.
    """
    _, cost, block, lanes, salt, expected = (stored or _NOBODY % COST).split("$")
    if not _ONE_AT_A_TIME.acquire(timeout=2):
        raise TooBusyError
    try:
        found = _scrypt(secret, base64.b64decode(salt), int(cost), int(block), int(lanes))
    finally:
        _ONE_AT_A_TIME.release()
    return hmac.compare_digest(found, base64.b64decode(expected))


def check_password(password: str) -> None:
    """Refuse a password that is too short, too long, or one character over and over.

    >>> check_password("short")
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: the password has 5 characters; use 10 to 200
    """
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise UsageError(
            f"the password has {len(password)} characters",
            hint=f"use {SHORTEST_PASSWORD} to {LONGEST_PASSWORD}",
        )
    if len(set(password)) < 4:
        raise UsageError("the password repeats itself", hint="use more different characters")


def check_pin(pin: str) -> None:
    """Refuse a PIN that is not digits, or that everybody tries first.

    >>> check_pin("1234")
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: the PIN is one of those that are tried first; choose another
    """
    if not (pin.isascii() and pin.isdecimal() and SHORTEST_PIN <= len(pin) <= LONGEST_PIN):
        raise UsageError(
            "the PIN is not a number", hint=f"use {SHORTEST_PIN} to {LONGEST_PIN} digits"
        )
    steps = {(int(b) - int(a)) % 10 for a, b in pairwise(pin)}
    if len(steps) == 1 and steps <= {0, 1, 9}:
        raise UsageError("the PIN is one of those that are tried first", hint="choose another")


def digest(secret: str) -> str:
    """Return the SHA-256 of a random secret, such as a token, whose own length protects it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _scrypt(secret: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    memory = 256 * cost * block * lanes + (1 << 20)
    return hashlib.scrypt(
        secret.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=memory, dklen=32
    )
