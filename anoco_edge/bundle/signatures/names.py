"""Which files of a bundle belong to its signatures, and which a signature does not cover."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from anoco_edge.storage.beneath import TEMPORARY
from anoco_edge.storage.locks import LOCK

FOLDER = "signatures"
SUFFIX = ".minisig"
"""What minisign appends to the name of the file that it signs."""
_STATEMENT = re.compile(rf"{FOLDER}/[0-9A-F]{{16}}-[0-9a-f]{{16}}\.txt")


def is_statement(path: str) -> bool:
    """Whether a file of a bundle is a signed statement, by its path.

    >>> is_statement("signatures/D7E673D4439430D3-0123456789abcdef.txt"), is_statement("a.txt")
    (True, False)
    """
    return _STATEMENT.fullmatch(path) is not None


def is_signature_file(path: str) -> bool:
    """Whether a file of a bundle is a signed statement, or the signature of one."""
    return is_statement(path.removesuffix(SUFFIX))


def is_covered(path: str) -> bool:
    """Whether signatures cover a file: all but themselves, locks, and what is half written.

    >>> is_covered("manifest.json"), is_covered("products/part/.lock")
    (True, False)
    """
    name = PurePosixPath(path).name
    lock = name == LOCK and re.fullmatch(r"products/[^/]+/[^/]+", path) is not None
    return not (lock or name.startswith(TEMPORARY) or is_signature_file(path))


def is_document(path: str) -> bool:
    """Whether a file is the manifest of a bundle or the current generation of a product."""
    return (
        path == "manifest.json" or re.fullmatch(r"products/[^/]+/product\.json", path) is not None
    )


def history_of(path: str) -> str:
    """Return the path of the current generation that a file of a history belongs to, or nothing.

    >>> history_of("products/part/history/product-3.json"), history_of("manifest.json")
    ('products/part/product.json', '')
    """
    found = re.fullmatch(r"(products/[^/]+)/history/product-[0-9]+\.json", path)
    return f"{found[1]}/product.json" if found else ""
