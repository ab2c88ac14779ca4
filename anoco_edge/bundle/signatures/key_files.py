"""Files of keys: `NAME.key`, which only its owner may read, and `NAME.pub`."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from anoco_edge.bundle.signatures.keys import MOST_BYTES, PublicKey, SecretKey, needs_password
from anoco_edge.errors import StorageError, UsageError
from anoco_edge.storage.atomic_files import sync_folder, writing


def write_key_pair(secret: Path, key: SecretKey, password: str = "") -> Path:
    """Write a new key pair; return the path of the public key. Existing files are refused."""
    public = secret.with_suffix(".pub")
    for path in (secret, public):
        if path.exists():
            raise UsageError(f"{path} exists already", hint="choose another name")
    with writing(str(secret)):
        _write_new(public, key.public.to_text(), 0o644)
        _write_new(secret, key.to_text(password), 0o600)  # last: with it the pair is complete
        sync_folder(secret.parent)
    return public


def read_public_key(path: Path) -> PublicKey:
    """Read a public key from its file."""
    return PublicKey.parse(_read(path), str(path))


def read_secret_key(path: Path, password: Callable[[], str] | None = None) -> SecretKey:
    """Read a secret key from its file; `password` is asked for one if the key has one.

    A key without a password that others may read is refused.
    """
    text = _read(path)
    if needs_password(text):
        return SecretKey.parse(text, str(path), password() if password else None)
    if path.stat().st_mode & 0o077:
        raise StorageError(
            f"others than its owner may read {path}", hint=f"change that: chmod 600 {path}"
        )
    return SecretKey.parse(text, str(path))


def _read(path: Path) -> str:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            raise UsageError(f"{path} is not a key", hint="name the file of a key of minisign")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(
            f"cannot read the key {path}: {reason}",
            hint="name its file, or make one with: anoco-edge sign `new_key=NAME`",
        ) from None


def _write_new(path: Path, text: str, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(handle)
