"""Changes files of a bundle and corrects their checksums, as a person who knows the format can."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from anoco_edge.bundle.checksum import seal
from anoco_edge.bundle.schema import FileRecord
from anoco_edge.storage.hashes import sha256_bytes

PRODUCT = Path("products/part")


def files_with_content(path: Path) -> list[Path]:
    """Return the paths of all files that are not empty, relative to the bundle."""
    files = (p for p in path.rglob("*") if p.is_file() and p.stat().st_size)
    return sorted(p.relative_to(path) for p in files)


def edit_document(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit a document and give it the checksum that fits its new content."""
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(seal(document))


def write_and_record(path: Path, data: bytes) -> dict[str, Any]:
    """Write a file and return the record of it that a document holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return FileRecord(path=path.name, sha256=sha256_bytes(data), size=len(data)).model_dump()


def rewrite_bank(path: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Replace a bank and correct all checksums, so that only its numbers can reveal the change."""
    bank = path / PRODUCT / "bank-2.safetensors"
    tensors = load(bank.read_bytes())
    change(tensors)
    new = write_and_record(bank, save({k: np.ascontiguousarray(v) for k, v in tensors.items()}))
    for name in ("product.json", "history/product-2.json"):
        edit_document(path / PRODUCT / name, lambda d: d.update(bank=new))
