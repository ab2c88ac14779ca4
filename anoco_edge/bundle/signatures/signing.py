"""Signing a bundle: a statement about its files, and the signature of a key over it.

The statement is written first, under a name of its own, then its signature by one rename: that is
the commit. Signatures that the bundle does not fit any more are removed afterwards.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from anoco_edge.bundle.signatures.checking import (
    SignedState,
    check_signature,
    covered_digests,
    signed_statements,
)
from anoco_edge.bundle.signatures.comment import SignedComment
from anoco_edge.bundle.signatures.keys import PublicKey, SecretKey
from anoco_edge.bundle.signatures.names import FOLDER, SUFFIX, is_covered, is_statement
from anoco_edge.bundle.signatures.statement import Statement, check_paths
from anoco_edge.bundle.store import Bundle
from anoco_edge.errors import SignatureError, StorageError
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.beneath import TEMPORARY, Directory
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.storage.locks import locked

LOCK_SECONDS = 60.0


def sign_bundle(
    bundle: Bundle, key: SecretKey, *, on_wait: Callable[[str], None] = lambda _: None
) -> SignedState:
    """Sign a bundle as it is now, after every file of it was verified.

    A file that does not belong to the bundle is an error. No product can be changed meanwhile.
    """
    with contextlib.ExitStack() as stack:
        for name in bundle.products():
            stack.enter_context(locked(bundle.product_folder(name), LOCK_SECONDS, on_wait))
        for _ in bundle.verify():
            pass
        files = (path.relative_to(bundle.path).as_posix() for path in bundle.strangers())
        if strangers := [name for name in files if is_covered(name)]:
            raise StorageError(
                f"{bundle.path / strangers[0]} does not belong to the bundle, so it is not signed",
                hint="remove it, then sign",
            )
        statement = Statement(covered_digests(bundle.path))
        check_paths(statement.files)
        comment = SignedComment(
            max(int(time.time()), _last_time(bundle.path, key.public) + 1), generations(bundle)
        )
        write_signature(bundle.path, statement, key, comment)
        remove_stale(bundle.path, statement)
    return check_signature(bundle.path, [key.public])


def generations(bundle: Bundle) -> dict[str, int]:
    """Return the current generation of each product of a bundle."""
    return {name: bundle.product(name).generation for name in bundle.products()}


def write_signature(
    path: Path, statement: Statement, key: SecretKey, comment: SignedComment
) -> str:
    """Sign a statement and write both into the bundle at `path`; return the statement's path."""
    data = statement.to_bytes()
    name = f"{FOLDER}/{key.public.number}-{sha256_bytes(data)[:16]}.txt"
    signature = key.sign(data, comment.text(name.removeprefix(f"{FOLDER}/")))
    with writing(str(path / FOLDER)), Directory.open(path) as top:
        fresh = [each for each in (name + SUFFIX, name) if not top.exists(each)]
        try:
            top.put(name, data)
            top.sync(FOLDER)
            top.put(name + SUFFIX, signature.to_bytes())
            top.sync(FOLDER)
        except BaseException:
            with contextlib.suppress(OSError):
                for each in fresh:
                    top.remove(each)
            raise
    return name


def remove_stale(path: Path, statement: Statement) -> None:
    """Remove all statements but those that say the same, their signatures, and what a killed
    process left half written.

    Where that fails they stay until the next time: nothing accepts what does not hold.
    """
    wanted = statement.to_bytes()
    with contextlib.suppress(OSError), Directory.open(path) as top:
        for name in filter(is_statement, top.files()):
            if top.read(name) != wanted:
                remove_signature(top, name)
        for name in top.files():
            if name.startswith(f"{FOLDER}/{TEMPORARY}"):
                top.remove(name)
        top.sync(FOLDER)


def remove_signature(top: Directory, statement: str) -> None:
    """Remove a statement of an open bundle, its signature first."""
    top.remove(statement + SUFFIX)
    top.remove(statement)


def _last_time(path: Path, key: PublicKey) -> int:
    """Return the time of this key's last signature, because the clock may have been set back."""
    try:
        return max(each.comment.timestamp for each in signed_statements(path, [key]))
    except SignatureError:
        return 0
