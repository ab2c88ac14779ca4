"""Changing a product: commit, undo, prune. The rename of product.json is the commit.

Each step is on the disk before the one that relies on it: new files and the folders that hold
their names, then history, then product.json. So a power cut leaves what a kill leaves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from anoco_edge.bundle.checksum import is_sealed
from anoco_edge.bundle.documents import MOST_BYTES, sealed_document
from anoco_edge.bundle.schema import Product
from anoco_edge.bundle.store import (
    Bundle,
    generation_of,
    history_path,
    product_files,
    read_sealed,
)
from anoco_edge.errors import UsageError
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.beneath import TEMPORARY, Directory
from anoco_edge.storage.durability import NotDurableError, committed
from anoco_edge.storage.locks import LOCK

_CURRENT = "product.json"
# The names that commits give: a picture and a mask by their hash, the rest by generation.
_WRITTEN = re.compile(
    r"history/product-[0-9]+\.json|bank-[0-9]+\.safetensors"
    r"|(references|calibration)/[0-9a-f]{16}(\.[^/]*)?|mask-[0-9a-f]{16}\.png"
    r"|baseline-[0-9]+\.safetensors"
)
_HISTORY = re.compile(r"history/product-[0-9]+\.json")
_PATH = re.compile(rb'"path"\s*:\s*"([^"]*)"')  # of a file, in a document


def next_generation(bundle: Bundle, name: str) -> int:
    """One more than any generation ever written that is still there."""
    # A kill between bank and history leaves a bank without its history file.
    written = [Path(file) for file in bundle.product_contents(name) if _WRITTEN.fullmatch(file)]
    numbers = [number for path in written if (number := generation_of(path)) is not None]
    return max(numbers, default=0) + 1


def commit(bundle: Bundle, product: Product, files: Mapping[str, bytes]) -> None:
    """New files first, each durable; then history; then product.json by one rename.

    The first generation writes its history last, so that history without a product.json says that
    it was lost. The caller holds the lock. What fails before the rename takes its new files away.
    """
    document = sealed_document(product)
    with writing(str(bundle.product_folder(product.name))), bundle.changing(product.name) as place:
        folder = place.folder
        history = {}
        if product.parent is not None:
            before = history_path(product.parent)
            if not folder.exists(before):  # a kill right after the very first commit
                history[before] = folder.read(_CURRENT, MOST_BYTES)
            history[history_path(product.generation)] = document
        _sweep(folder)
        fresh = [name for name in (*history, *files) if not folder.exists(name)]
        try:
            _put(folder, files)
            if product.parent is None:  # the folder itself may be new
                place.products.sync()
                place.bundle.sync()
            _put(folder, history)
            folder.put(_CURRENT, document)
        except BaseException as error:
            # The rename itself may have happened before the failure: then it is committed.
            if not _is_current(folder, document):
                _take_away(folder, fresh)
            elif isinstance(error, OSError):
                raise NotDurableError(error.errno, error.strerror) from None
            raise
        with committed():
            folder.sync()
            if product.parent is None:
                _put(folder, {history_path(product.generation): document})


def _put(folder: Directory, contents: Mapping[str, bytes]) -> None:
    """Write files; they and their names are on the disk at the end."""
    for name, data in contents.items():
        folder.put(name, data)
    for above in sorted({PurePosixPath(name).parent.as_posix() for name in contents} - {"."}):
        folder.sync(above)
    if contents:
        folder.sync()


def _take_away(folder: Directory, names: list[str]) -> None:
    """History goes first: a generation is never listed when its files are gone."""
    history = [name for name in names if name.startswith("history/")]
    for name in history:
        folder.remove(name)
    if history:
        folder.sync("history")
    for name in names:
        if name not in history:
            folder.remove(name)


def _is_current(folder: Directory, document: bytes) -> bool:
    return folder.exists(_CURRENT) and folder.read(_CURRENT, MOST_BYTES) == document


def _sweep(folder: Directory) -> None:
    """Remove what a killed process left: half-written files, and files that no generation names.

    Nobody writes while the lock is held. Where a generation is damaged, nobody knows what it names,
    and only half-written files go.
    """
    files = folder.files()
    kept = _named_by_any(folder, files)
    for file in files:
        orphan = kept is not None and _WRITTEN.fullmatch(file) is not None and file not in kept
        if orphan or PurePosixPath(file).name.startswith(TEMPORARY):
            folder.remove(file)


def _named_by_any(folder: Directory, files: list[str]) -> set[str] | None:
    """Every file that a generation relies on, and the generations themselves; None if one is
    damaged. Their text is searched, not parsed: there may be hundreds."""
    kept: set[str] = set()
    for file in files:
        if file == _CURRENT or _HISTORY.fullmatch(file):
            raw = folder.read(file, MOST_BYTES)
            if not is_sealed(raw):
                return None
            kept |= {file, *(path.decode("utf-8", "replace") for path in _PATH.findall(raw))}
    return kept


def undo(bundle: Bundle, name: str) -> Product:
    """Go back to the generation before the current one. The caller holds the lock."""
    current = bundle.product(name)
    folder = bundle.product_folder(name)
    if current.parent is None:
        raise UsageError(f"product {name!r} is at its first generation; there is nothing to undo")
    before = history_path(current.parent)
    with writing(str(folder)), bundle.changing(name) as place:
        if not place.folder.exists(before):
            raise UsageError(
                f"generation {current.parent} of {name!r} was pruned: no way back",
                hint="enrol or calibrate again to get what it held",
            )
        previous = read_sealed(folder / before, Product, bundle.path)
        for record in product_files(previous):
            bundle.locate(record, folder)
        _sweep(place.folder)
        place.folder.put(_CURRENT, place.folder.read(before, MOST_BYTES))
        with committed():
            place.folder.sync()
    return previous


def prune(bundle: Bundle, name: str) -> list[Path]:
    """Delete what the current generation does not need. The caller holds the lock."""
    folder = bundle.product_folder(name)
    current = bundle.product(name)
    keep = {_CURRENT, LOCK, history_path(current.generation)}
    keep |= {record.path for record in product_files(current)}
    with writing(str(folder)), bundle.changing(name) as place:
        place.folder.sync()  # the current generation itself: nothing else will be left
        doomed = [file for file in place.folder.files() if file not in keep and _ours(file)]
        _take_away(place.folder, doomed)
        place.folder.sync()
    return [folder / file for file in sorted(doomed, key=_history_first)]


def _history_first(name: str) -> tuple[bool, str]:
    return not name.startswith("history/"), name


def _ours(name: str) -> bool:
    """Only what we write is deleted; a file someone put there is theirs."""
    temporary = PurePosixPath(name).name.startswith(TEMPORARY)
    return temporary or _WRITTEN.fullmatch(name) is not None
