"""Changing a product: commit, undo, prune. The rename of product.json is the commit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from anoco_edge.bundle.disk import LOCK, TEMPORARY, sync_folder, write_atomic, writing
from anoco_edge.bundle.documents import sealed_document
from anoco_edge.bundle.schema import Product
from anoco_edge.bundle.store import (
    Bundle,
    generation_of,
    history_path,
    product_files,
    read_sealed,
)
from anoco_edge.errors import UsageError

# The names that commits give: a picture and a mask by their hash, the rest by generation.
_WRITTEN = re.compile(
    r"history/product-[0-9]+\.json|bank-[0-9]+\.safetensors"
    r"|(references|calibration)/[0-9a-f]{16}(\.[^/]*)?|mask-[0-9a-f]{16}\.png"
    r"|baseline-[0-9]+\.safetensors"
)


def next_generation(bundle: Bundle, name: str) -> int:
    """One more than any generation ever written that is still there."""
    folder = bundle.product_folder(name)
    # A kill between bank and history leaves a bank without its history file.
    written = (*folder.glob("bank-*.safetensors"), *folder.glob("history/product-*.json"))
    numbers = [number for p in written if (number := generation_of(p)) is not None]
    return max(numbers, default=0) + 1


def commit(bundle: Bundle, product: Product, files: Mapping[str, bytes]) -> None:
    """New files first, each durable; then history; then product.json by one rename.

    The first generation writes its history last, so that history without a product.json says that
    it was lost. The caller holds the lock. What fails before the rename takes its new files away.
    """
    folder = bundle.product_folder(product.name)
    document = sealed_document(product)
    history = folder / history_path(product.generation)
    contents = dict(files)
    if product.parent is not None:
        before = history_path(product.parent)
        if not (folder / before).exists():  # a kill right after the very first commit
            contents[before] = (folder / "product.json").read_bytes()
        contents[history_path(product.generation)] = document
    fresh = [folder / name for name in contents if not (folder / name).exists()]
    with writing(str(folder)):
        _sweep(folder)
        try:
            for name, data in contents.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_atomic(folder / name, data)
            write_atomic(folder / "product.json", document)
        except BaseException:
            # The rename itself may have happened before the failure: then it is committed.
            if not _is_current(folder, document):
                for path in fresh:
                    path.unlink(missing_ok=True)
            raise
        if product.parent is None:  # the folder itself may be new
            history.parent.mkdir(exist_ok=True)
            write_atomic(history, document)
            sync_folder(folder.parent)
            sync_folder(bundle.path)


def _is_current(folder: Path, document: bytes) -> bool:
    current = folder / "product.json"
    return current.is_file() and current.read_bytes() == document


def _sweep(folder: Path) -> None:
    """Half-written files of a process that was killed; nobody writes while the lock is held."""
    for path in folder.rglob(f"{TEMPORARY}*"):
        path.unlink()


def undo(bundle: Bundle, name: str) -> Product:
    """Go back to the generation before the current one. The caller holds the lock."""
    current = bundle.product(name)
    folder = bundle.product_folder(name)
    if current.parent is None:
        raise UsageError(f"product {name!r} is at its first generation; there is nothing to undo")
    path = folder / history_path(current.parent)
    if not path.is_file():
        raise UsageError(f"generation {current.parent} of {name!r} was pruned: no way back")
    previous = read_sealed(path, Product)
    for record in product_files(previous):
        bundle.locate(record, folder)
    with writing(str(folder)):
        write_atomic(folder / "product.json", path.read_bytes())
    return previous


def prune(bundle: Bundle, name: str) -> list[Path]:
    """Delete what the current generation does not need. The caller holds the lock."""
    folder = bundle.product_folder(name)
    current = bundle.product(name)
    keep = {folder / "product.json", folder / LOCK, folder / history_path(current.generation)}
    keep |= {folder / record.path for record in product_files(current)}
    doomed = [p for p in folder.rglob("*") if p.is_file() and p not in keep and _ours(p, folder)]
    # History goes first: a generation is never listed when its files are gone.
    doomed.sort(key=lambda p: (p.parent.name != "history", p))
    with writing(str(folder)):
        for path in doomed:
            path.unlink()
    return doomed


def _ours(path: Path, folder: Path) -> bool:
    """Only what we write is deleted; a file someone put there is theirs."""
    name = path.relative_to(folder).as_posix()
    return path.name.startswith(TEMPORARY) or _WRITTEN.fullmatch(name) is not None
