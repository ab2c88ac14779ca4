"""Changing a product: commit, undo and prune. The rename of product.json is the commit.

Each step is on the disk before the next step, which relies on it: first new files and the folders
that hold their names, then history, then product.json. So a power cut leaves the same state as a
killed process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath

from anoco_edge.bundle.checksum import is_sealed
from anoco_edge.bundle.documents import MOST_BYTES, sealed_document
from anoco_edge.bundle.schema import Product
from anoco_edge.bundle.signatures.commits import BundleChange
from anoco_edge.bundle.store import (
    Bundle,
    ProductPlace,
    generation_of,
    history_path,
    product_files,
    read_sealed,
)
from anoco_edge.errors import BundleError, ConflictError, UsageError
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.beneath import TEMPORARY, Directory
from anoco_edge.storage.durability import NotDurableError, committed
from anoco_edge.storage.locks import LOCK

_CURRENT = "product.json"
# The names of files that commits write: pictures and masks have their hash, the rest a generation.
_WRITTEN = re.compile(
    r"history/product-[0-9]+\.json|bank-[0-9]+\.safetensors"
    r"|(references|calibration)/[0-9a-f]{16}(\.[^/]*)?|mask-[0-9a-f]{16}\.png"
    r"|baseline-[0-9]+\.safetensors"
)
_HISTORY = re.compile(r"history/product-[0-9]+\.json")
_PATH = re.compile(rb'"path"\s*:\s*"([^"]*)"')  # the path of a file, in a document


def next_generation(bundle: Bundle, name: str) -> int:
    """The number after the highest of any file that a generation has left in the folder."""
    # A process that is killed between bank and history leaves a bank without its history file.
    written = [Path(file) for file in bundle.product_contents(name) if _WRITTEN.fullmatch(file)]
    numbers = [number for path in written if (number := generation_of(path)) is not None]
    return max(numbers, default=0) + 1


def read_generation(bundle: Bundle, name: str, generation: int) -> Product:
    """Read one generation of a product, the current one or one that was not pruned."""
    current = bundle.product(name)
    if current.generation == generation:
        return current
    for product in bundle.generations(name):
        if product.generation == generation:
            return product
    raise BundleError(
        f"generation {generation} of product {name!r} is not in {bundle.path} any more",
        hint="it was pruned, or the bundle was made again: bring back a copy that has it",
    )


def check_generation(name: str, current: Product | None, expected: int | None) -> None:
    """Refuse a change that was planned for another generation than the current one."""
    generation = current.generation if current else 0
    if expected is not None and generation != expected:
        raise ConflictError(
            f"product {name!r} is at generation {generation}, the change was made for {expected}",
            hint="look at what changed meanwhile, and make the change again if it still holds",
        )


def commit(bundle: Bundle, product: Product, files: Mapping[str, bytes]) -> None:
    """Commit a generation: write its new files, then history, then product.json by one rename.

    The first generation writes its history last, so that history without a product.json shows that
    the product.json was lost. The caller holds the lock. An error before the rename removes the new
    files.
    """
    document = sealed_document(product)
    with writing(str(bundle.product_folder(product.name))), bundle.changing(product.name) as place:
        folder = place.folder
        history, copied = {}, {}
        if product.parent is not None:
            before = history_path(product.parent)
            if not folder.exists(before):  # killed right after the first commit
                history[before] = folder.read(_CURRENT, MOST_BYTES)
                copied[before] = _CURRENT
            history[history_path(product.generation)] = document
        _sweep(folder)
        written = {**files, history_path(product.generation): document, _CURRENT: document}
        with _signing(bundle, BundleChange(product.name, product.generation, written, copied)):
            _commit(place, product, document, files, history)


def _signing(bundle: Bundle, change: BundleChange) -> AbstractContextManager[None]:
    """Sign the change that the block makes, where the bundle has a signer."""
    return nullcontext() if bundle.signer is None else bundle.signer.signing(bundle.path, change)


def _commit(
    place: ProductPlace,
    product: Product,
    document: bytes,
    files: Mapping[str, bytes],
    history: Mapping[str, bytes],
) -> None:
    folder = place.folder
    fresh = [name for name in (*history, *files) if not folder.exists(name)]
    try:
        _put(folder, files)
        if product.parent is None:  # the folder itself may be new
            place.products.sync()
            place.bundle.sync()
        _put(folder, history)
        folder.put(_CURRENT, document)
    except BaseException as error:
        # Where the rename had happened before the error, the generation is committed.
        if not _is_current(folder, document):
            _remove(folder, fresh)
        elif isinstance(error, OSError):
            raise NotDurableError(error.errno, error.strerror) from None
        raise
    with committed():
        folder.sync()
        if product.parent is None:
            _put(folder, {history_path(product.generation): document})


def _put(folder: Directory, contents: Mapping[str, bytes]) -> None:
    """Write files. When it returns, they and their names are on the disk."""
    for name, data in contents.items():
        folder.put(name, data)
    for above in sorted({PurePosixPath(name).parent.as_posix() for name in contents} - {"."}):
        folder.sync(above)
    if contents:
        folder.sync()


def _remove(folder: Directory, names: list[str]) -> None:
    """Remove files, history first, so that no generation is listed whose files are gone."""
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

    No other process writes while the lock is held. Where a generation is damaged, the files that it
    names are not known, and only half-written files are removed.
    """
    files = folder.files()
    kept = _named_by_any(folder, files)
    for file in files:
        orphan = kept is not None and _WRITTEN.fullmatch(file) is not None and file not in kept
        if orphan or PurePosixPath(file).name.startswith(TEMPORARY):
            folder.remove(file)


def _named_by_any(folder: Directory, files: list[str]) -> set[str] | None:
    """The files that the generations name, and the generations themselves; None where a generation
    is damaged. The documents are searched and not parsed, because there may be hundreds."""
    kept: set[str] = set()
    for file in files:
        if file == _CURRENT or _HISTORY.fullmatch(file):
            raw = folder.read(file, MOST_BYTES)
            if not is_sealed(raw):
                return None
            kept |= {file, *(path.decode("utf-8", "replace") for path in _PATH.findall(raw))}
    return kept


def undo(bundle: Bundle, name: str) -> Product:
    """Make the generation before the current one the current one. The caller holds the lock."""
    current = bundle.product(name)
    folder = bundle.product_folder(name)
    if current.parent is None:
        raise UsageError(
            f"product {name!r} is at its first generation", hint="there is nothing to undo"
        )
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
        change = BundleChange(name, previous.generation, {}, {_CURRENT: before})
        with _signing(bundle, change):
            place.folder.put(_CURRENT, place.folder.read(before, MOST_BYTES))
            with committed():
                place.folder.sync()
    return previous


def prune(bundle: Bundle, name: str) -> list[Path]:
    """Delete the files that the current generation does not need, and return their paths.

    The caller holds the lock.
    """
    folder = bundle.product_folder(name)
    current = bundle.product(name)
    keep = {_CURRENT, LOCK, history_path(current.generation)}
    keep |= {record.path for record in product_files(current)}
    with writing(str(folder)), bundle.changing(name) as place:
        place.folder.sync()  # the current generation, which is all that stays
        obsolete = [
            file
            for file in place.folder.files()
            if file not in keep and _is_written_by_commits(file)
        ]
        change = BundleChange(name, current.generation, {}, {}, tuple(obsolete))
        with _signing(bundle, change):
            _remove(place.folder, obsolete)
            place.folder.sync()
    return [folder / file for file in sorted(obsolete, key=_history_first)]


def _history_first(name: str) -> tuple[bool, str]:
    return not name.startswith("history/"), name


def _is_written_by_commits(name: str) -> bool:
    """Whether commits write files of this name. Files that a person put there are not deleted."""
    temporary = PurePosixPath(name).name.startswith(TEMPORARY)
    return temporary or _WRITTEN.fullmatch(name) is not None
