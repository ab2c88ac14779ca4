"""The statement that a signature signs: every file of a bundle with its SHA-256.

The same files always give the same bytes: a first line, then one line a file, sorted by path, as
`sha256sum` writes them. So `sha256sum -c` checks the files, and minisign the statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anoco_edge.errors import SignatureError, StorageError
from anoco_edge.storage.hashes import sha256_bytes

MOST_BYTES = 1 << 24
_HEADER = "# anoco-edge: the files of a signed bundle, version 1"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


@dataclass(frozen=True)
class Statement:
    """The SHA-256 of every covered file of a bundle, by its path.

    >>> made = Statement({"manifest.json": "0" * 64})
    >>> Statement.parse(made.to_bytes(), "statement.txt") == made
    True
    """

    files: Mapping[str, str]

    @classmethod
    def parse(cls, raw: bytes, name: str) -> Statement:
        """Read a statement; anything but the very bytes that `to_bytes` gives is refused."""
        lines = raw.decode("utf-8", "replace").removesuffix("\n").split("\n")
        found = [_LINE.fullmatch(line) for line in lines[1:]]
        made = cls({each[2]: each[1] for each in found if each is not None})
        if lines[0] != _HEADER or made.to_bytes() != raw:
            raise SignatureError(
                f"{name} is not a statement about a bundle", hint="sign the bundle again"
            )
        return made

    def to_bytes(self) -> bytes:
        """Return the bytes that are signed."""
        lines = [f"{self.files[path]}  {path}" for path in sorted(self.files)]
        return "".join(f"{line}\n" for line in (_HEADER, *lines)).encode("utf-8", "surrogateescape")

    @property
    def manifest(self) -> str:
        """The SHA-256 of the manifest; empty if there is none."""
        return self.files.get("manifest.json", "")

    def with_changes(
        self,
        written: Mapping[str, bytes],
        copied: Mapping[str, str],
        removed: Iterable[str] = (),
    ) -> Statement:
        """Return the statement about the bundle after a change.

        `written` has the new content of files, `copied` the path of the signed file whose content
        another one gets.
        """
        gone = set(removed)
        files = {path: digest for path, digest in self.files.items() if path not in gone}
        files |= {path: self.files[source] for path, source in copied.items()}
        files |= {path: sha256_bytes(data) for path, data in written.items()}
        return Statement(files)


def check_paths(paths: Iterable[str]) -> None:
    """Refuse to sign a file whose name does not fit into a line of text."""
    for path in paths:
        if not path.isprintable() or "\\" in path:
            raise StorageError(
                f"the name of {path!r} cannot be signed", hint="rename or remove that file"
            )
