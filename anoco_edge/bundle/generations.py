"""Changing a product: commit, undo, prune. The rename of product.json is the commit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from anoco_edge.bundle.disk import LOCK, TEMPORARY, write_atomic, writing
from anoco_edge.bundle.schema import Product
from anoco_edge.bundle.store import (
    Bundle,
    history_path,
    product_files,
    read_sealed,
    sealed_document,
)
from anoco_edge.errors import UsageError


def next_generation(bundle: Bundle, name: str) -> int:
    """One more than any generation ever written that is still there."""
    folder = bundle.product_folder(name)
    numbers = [g.generation for g in bundle.generations(name)]
    # A kill between bank and history leaves a bank without its history file.
    numbers += [int(p.stem.split("-")[1]) for p in folder.glob("bank-*.safetensors")]
    return max(numbers, default=0) + 1


def commit(bundle: Bundle, product: Product, files: Mapping[str, bytes]) -> None:
    """New files first, each durable; then history; then product.json by one rename."""
    folder = bundle.product_folder(product.name)
    document = sealed_document(product)
    with writing(str(folder)):
        for name, data in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, data)
        history = folder / history_path(product.generation)
        history.parent.mkdir(exist_ok=True)
        write_atomic(history, document)
        write_atomic(folder / "product.json", document)


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
    place = path.relative_to(folder).parts[0]
    return (
        place in ("history", "references")
        or path.name.startswith(TEMPORARY)
        or (path.name.startswith("bank-") and path.suffix == ".safetensors")
        or (path.name.startswith("mask-") and path.suffix == ".png")
    )
