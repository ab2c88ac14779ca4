"""Models a disk that may lose what was not synced, and replays a recorded trace on it.

File contents are durable after an fsync of the file, names after an fsync of their directory; a
rename between two directories is one step, durable with either. Pending changes may be lost.
`crash` returns what a power cut may have left: the caller chooses which pending changes are kept,
and may also keep names in another order than they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.attack.shim import Op
from tests.attack.trace import Event

RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
Files = dict[str, bytes | None]
"""What lies below the root: contents by path, None for a directory."""


@dataclass
class Node:
    """A file or a directory; it outlives its names."""

    folder: bool
    data: bytes = b""
    durable: bytes = b""
    names: dict[str, Node] = field(default_factory=dict)
    durable_names: dict[str, Node] = field(default_factory=dict)

    @property
    def pending(self) -> bool:
        return self.data != self.durable


@dataclass
class Change:
    """One change of names: in which directories which names lead to what."""

    names: list[tuple[Node, str, Node | None]]

    @property
    def folders(self) -> list[Node]:
        return [folder for folder, _, _ in self.names]


class Disk:
    """The tree below a root, as the program sees it and as the disk has it."""

    def __init__(self, root: Path) -> None:
        self.root = _read(root)
        self.pending: list[Change] = []

    def apply(self, event: Event) -> None:
        """Apply one recorded call."""
        match event.op:
            case Op.OPEN:
                if event.a:
                    self._change([(*self._place(event.path), Node(folder=False))])
                elif event.b:
                    self._find(event.path).data = b""
            case Op.WRITE:
                node = self._find(event.path)
                held = node.data.ljust(event.a, b"\0")
                node.data = held[: event.a] + event.data + held[event.a + len(event.data) :]
            case Op.TRUNCATE:
                node = self._find(event.path)
                node.data = node.data[: event.a].ljust(event.a, b"\0")
            case Op.MKDIR:
                self._change([(*self._place(event.path), Node(folder=True))])
            case Op.UNLINK:
                self._change([(*self._place(event.path), None)])
            case Op.LINK:
                self._change([(*self._place(event.other), self._find(event.path))])
            case Op.RENAME:
                back = self._find(event.other) if event.a & RENAME_EXCHANGE else None
                moved = self._find(event.path)
                self._change([(*self._place(event.path), back), (*self._place(event.other), moved)])
            case Op.SYNC:
                self._sync(self._find(event.path))

    def crash(self, keep: Callable[[Change], bool], content: Callable[[Node], bytes]) -> Files:
        """Return what the disk shows after a cut.

        The caller gives the pending changes that are kept; `content` says what each unsynced file
        holds.
        """
        names: dict[int, dict[str, Node]] = {}

        def of(folder: Node) -> dict[str, Node]:
            return names.setdefault(id(folder), dict(folder.durable_names))

        for change in self.pending:
            if keep(change):
                for folder, name, node in change.names:
                    _set(of(folder), name, node)
        found: Files = {}

        def walk(folder: Node, path: str) -> None:
            for name, node in of(folder).items():
                found[path + name] = None if node.folder else content(node)
                if node.folder:
                    walk(node, f"{path}{name}/")

        walk(self.root, "")
        return found

    # ---- names

    def _find(self, path: str) -> Node:
        node = self.root
        for part in path.split("/") if path else ():
            node = node.names[part]
        return node

    def _place(self, path: str) -> tuple[Node, str]:
        above, _, name = path.rpartition("/")
        return self._find(above), name

    def _change(self, names: list[tuple[Node, str, Node | None]]) -> None:
        for folder, name, node in names:
            _set(folder.names, name, node)
        self.pending.append(Change(names))

    def _sync(self, node: Node) -> None:
        if not node.folder:
            node.durable = node.data
            return
        left: list[Change] = []
        for change in self.pending:
            if any(folder is node for folder in change.folders):
                for folder, name, target in change.names:
                    _set(folder.durable_names, name, target)
                    _supersede(left, folder, name)
            else:
                left.append(change)
        self.pending = [change for change in left if change.names]


def _supersede(earlier: list[Change], folder: Node, name: str) -> None:
    """Drop the pending changes of a name that is already newer on the disk."""
    for change in earlier:
        change.names = [(f, n, to) for f, n, to in change.names if f is not folder or n != name]


def _set(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _read(path: Path) -> Node:
    """Read a folder as it is before the command; all of it is on the disk."""
    if not path.is_dir():
        data = path.read_bytes()
        return Node(False, data, data)
    names = {entry.name: _read(entry) for entry in sorted(path.iterdir())}
    return Node(True, names=names, durable_names=dict(names))


# ---- what a power cut leaves


def lost(_: Node | Change) -> bool:
    """Keep no pending change."""
    return False


def kept(_: Node | Change) -> bool:
    """Keep every pending change."""
    return True


def outcomes(disk: Disk, rng: np.random.Generator, random: int) -> Iterable[tuple[str, Files]]:
    """Yield possible states after a cut, each with a word about what was lost."""
    yield "all unsynced lost", disk.crash(lost, lambda node: node.durable)
    yield "all kept", disk.crash(kept, lambda node: node.data)
    yield "names kept, data lost", disk.crash(kept, lambda node: node.durable)
    for _ in range(random):
        number = rng.integers(len(disk.pending) + 1)
        first = {id(change) for change in disk.pending[:number]}
        yield (
            f"the first {number} of {len(disk.pending)} names kept, data by chance",
            disk.crash(lambda change, first=first: id(change) in first, _by_chance(rng)),
        )
        some = {id(change) for change in disk.pending if rng.random() < 0.5}
        yield (
            f"{len(some)} of {len(disk.pending)} names kept in any order, data by chance",
            disk.crash(lambda change, some=some: id(change) in some, _by_chance(rng)),
        )


def _by_chance(rng: np.random.Generator) -> Callable[[Node], bytes]:
    """Return an unsynced file as before, empty, cut off, with zeros for data, or whole."""

    def content(node: Node) -> bytes:
        if not node.pending:
            return node.data
        whole = node.data
        cut = int(rng.integers(len(whole) + 1))
        choices = (node.durable, b"", whole[:cut], whole[:cut].ljust(len(whole), b"\0"), whole)
        return choices[rng.integers(len(choices))]

    return content


def write_files(files: Files, folder: Path) -> None:
    """Write the files to a real folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(data)
