"""Signing what a change makes of a bundle, so that the change and its signature are one step.

The new state is signed before its first file is written, beside the signature of the state before.
Wherever a kill or a power cut comes, one of the two holds: the files of the other are not strange,
because an accepted statement names them (`checking.py`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anoco_edge.bundle.signatures.checking import SignedState
from anoco_edge.bundle.signatures.comment import SignedComment
from anoco_edge.bundle.signatures.keys import SecretKey
from anoco_edge.bundle.signatures.signing import remove_signature, remove_stale, write_signature
from anoco_edge.storage.beneath import Directory
from anoco_edge.storage.hashes import sha256_bytes


@dataclass(frozen=True)
class BundleChange:
    """What a commit does to one product: the files that it writes, those that it copies (by the
    path of the signed original), those that it removes, and the generation that it makes."""

    product: str
    generation: int
    written: Mapping[str, bytes]
    copied: Mapping[str, str]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommitSigner:
    """Signs commits with the key of this station, or of the person who teaches.

    `check` says what is signed before; a bundle that nobody signed, or that was changed since, is
    not changed and not signed. What is signed is computed from that statement and from the content
    to be written, and never from files that somebody may have changed in between. One process at a
    time may sign commits to a bundle, as the worker of a station does.
    """

    key: SecretKey
    check: Callable[[Path], SignedState]
    signer: str

    @contextlib.contextmanager
    def signing(self, path: Path, change: BundleChange) -> Iterator[None]:
        """Sign a change of the bundle at `path`, which the block then makes."""
        before = self.check(path)
        folder = f"products/{change.product}"
        statement = before.present.with_changes(
            {f"{folder}/{name}": data for name, data in change.written.items()},
            {f"{folder}/{name}": f"{folder}/{source}" for name, source in change.copied.items()},
            _below(folder, change.removed),
        )
        comment = SignedComment(
            max(int(time.time()), before.comment.timestamp + 1),
            {**before.comment.generations, change.product: change.generation},
            self.signer,
            before.key.number,
        )
        name = write_signature(path, statement, self.key, comment)
        current = f"{folder}/product.json"
        try:
            yield
        except BaseException:
            if _digest(path, current) != statement.files[current]:  # nothing was committed
                with Directory.open(path) as top:
                    remove_signature(top, name)
            raise
        remove_stale(path, statement)


def _below(folder: str, names: Iterable[str]) -> list[str]:
    return [f"{folder}/{name}" for name in names]


def _digest(path: Path, name: str) -> str:
    with Directory.open(path) as top:
        return sha256_bytes(top.read(name)) if top.exists(name) else ""
