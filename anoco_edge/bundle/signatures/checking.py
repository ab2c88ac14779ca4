"""Whether a bundle is what an accepted key signed, and if not, what was changed.

A bundle may hold several signatures: of several keys, and for a moment two of one key, because a
change is signed before it is committed (`commits.py`). The bundle is signed if one accepted
statement holds: each of its files is there with its hash, and every other file of the bundle stands
in another accepted statement.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anoco_edge.bundle.checksum import carried_checksum
from anoco_edge.bundle.documents import MOST_BYTES as MOST_DOCUMENT
from anoco_edge.bundle.schema import Manifest, Product
from anoco_edge.bundle.signatures import signature as signature_file
from anoco_edge.bundle.signatures import statement as statement_file
from anoco_edge.bundle.signatures.comment import SignedComment
from anoco_edge.bundle.signatures.keys import PublicKey
from anoco_edge.bundle.signatures.names import (
    FOLDER,
    SUFFIX,
    history_of,
    is_covered,
    is_document,
    is_statement,
)
from anoco_edge.bundle.signatures.signature import Signature, key_number
from anoco_edge.bundle.signatures.statement import Statement
from anoco_edge.bundle.store import Bundle
from anoco_edge.errors import AnocoError, BundleError, SignatureError
from anoco_edge.storage.beneath import Directory
from anoco_edge.storage.hashes import sha256_bytes, sha256_stream

Digest = Callable[[str], str]
"""Returns the SHA-256 of a file of a bundle, by its path."""


@dataclass(frozen=True)
class SignedState:
    """A statement that an accepted key signed and that holds for the bundle."""

    path: Path
    key: PublicKey
    comment: SignedComment
    statement: Statement
    present: Statement
    """The files that are there. After a kill, some may stand in another accepted statement."""
    checksums: Mapping[str, str]
    """The checksum that each signed document carries: of manifest.json and each product.json."""

    def check_opened(self, manifest: Manifest, product: Product) -> None:
        """Refuse documents that were read from the bundle and are not those that are signed."""
        for path, checksum in (
            ("manifest.json", manifest.checksum),
            (f"products/{product.name}/product.json", product.checksum),
        ):
            if self.checksums.get(path) != checksum:
                raise SignatureError(
                    f"{self.path} was changed while it was opened: {path}", hint="open it again"
                )


@dataclass(frozen=True)
class SignedStatement:
    """A statement with a good signature of an accepted key, whether it holds or not."""

    key: PublicKey
    comment: SignedComment
    statement: Statement


def check_signature(
    path: Path, keys: Sequence[PublicKey], *, documents_only: bool = False, name: str = ""
) -> SignedState:
    """Check that a bundle is what one of the keys signed; else a SignatureError names the change.

    With `documents_only`, the hashes of manifest and products are checked, which hold those of all
    other files, and of the others that they are there. `name` is that of the bundle in errors.
    """
    name = name or str(path)
    try:
        with Directory.open(path) as top:
            files = top.files()
            accepted = _statements(top, files, keys, name)
            digests, checksums = _digests(top, filter(is_covered, files), documents_only)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise BundleError(f"{name} cannot be read: {reason}", hint="check the disk") from None
    found = [(_differences(each, accepted, digests), each) for each in accepted]
    differences, best = min(found, key=lambda pair: (len(pair[0]), -pair[1].comment.timestamp))
    if differences:
        more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
        what = _with_generation(differences[0], best.comment, path)
        raise SignatureError(
            f"{name} is not as key {best.key.number} signed it: {what}{more}",
            hint="sign it again if this is wanted, or copy the signed bundle again",
        )
    signed = {path: sum_ for path, sum_ in checksums.items() if path in best.statement.files}
    present = Statement(digests)
    return SignedState(path, best.key, best.comment, best.statement, present, signed)


def _statements(
    top: Directory, files: Iterable[str], keys: Sequence[PublicKey], name: str
) -> list[SignedStatement]:
    """Return the statements with a good signature of one of the keys; none is an error."""
    present, found, others = set(files), [], []
    for path in sorted(present):
        if not is_statement(path) or path + SUFFIX not in present:
            continue
        raw = top.read(path, statement_file.MOST_BYTES)
        signature = Signature.parse(
            top.read(path + SUFFIX, signature_file.MOST_BYTES), f"{name}/{path}{SUFFIX}"
        )
        same = [key for key in keys if key.key_id == signature.key_id]
        good = next((key for key in same if key.verify(raw, signature)), None)
        if good is not None:
            comment = SignedComment.parse(signature.comment)
            found.append(SignedStatement(good, comment, Statement.parse(raw, f"{name}/{path}")))
        elif same:
            raise SignatureError(
                f"{name}/{path} is not what key {same[0].number} signed",
                hint=f"the statement or its signature was replaced: remove {FOLDER}, sign again",
            )
        else:
            others.append(key_number(signature.key_id))
    if found:
        return found
    if others:
        raise SignatureError(
            f"{name} is signed by key {', '.join(dict.fromkeys(others))}, which is not accepted",
            hint="give the public key of its signer, or sign it with an accepted key",
        )
    raise SignatureError(
        f"{name} is not signed", hint="sign it with: anoco-edge sign BUNDLE `key=KEY`"
    )


def signed_statements(path: Path, keys: Sequence[PublicKey]) -> list[SignedStatement]:
    """Return the statements in a bundle that one of the keys signed; none is a SignatureError."""
    with Directory.open(path) as top:
        return _statements(top, top.files(), keys, str(path))


def covered_digests(path: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that a signature covers."""
    with Directory.open(path) as top:
        return _digests(top, filter(is_covered, top.files()), documents_only=False)[0]


def _digests(
    top: Directory, files: Iterable[str], documents_only: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Hash files of a bundle; return the digests, and the checksums that documents carry. A file
    that is only looked for has an empty digest."""
    digests, checksums = {}, {}
    for path in files:
        if is_document(path):
            raw = top.read(path, MOST_DOCUMENT)
            digests[path], checksums[path] = sha256_bytes(raw), carried_checksum(raw)
        elif documents_only:
            digests[path] = ""
        else:
            with top.open_file(path) as stream:
                digests[path] = sha256_stream(stream)
    return digests, checksums


def _differences(
    signed: SignedStatement, accepted: list[SignedStatement], digests: Mapping[str, str]
) -> list[str]:
    """Say in words what is not as it was signed, the current generations first."""
    statement = signed.statement.files
    changed = [p for p in statement if p in digests and digests[p] not in ("", statement[p])]
    missing = [p for p in statement if p not in digests and not _is_repeated(p, statement)]
    same = [each for each in accepted if each.statement.manifest == signed.statement.manifest]
    elsewhere = {item for each in same for item in each.statement.files.items()}
    names = {path for path, _ in elsewhere}
    extra = [
        p
        for p in digests
        if p not in statement and (p, digests[p]) not in elsewhere
        if digests[p] or p not in names
    ]
    changed.sort(key=lambda path: not path.endswith("/product.json"))
    return [
        *(f"{path} was changed" for path in changed),
        *(f"{path} is missing" for path in missing),
        *(f"{path} was added" for path in extra),
    ]


def _is_repeated(path: str, statement: Mapping[str, str]) -> bool:
    """Whether a file of a history only repeats the current generation. The first commit of a
    product writes it last, and a power cut may come before."""
    return bool(current := history_of(path)) and statement.get(current) == statement[path]


def _with_generation(difference: str, comment: SignedComment, path: Path) -> str:
    """Add to a changed product.json the generation that was signed and the one that it has now."""
    _, _, rest = difference.partition("products/")
    product = rest.removesuffix("/product.json was changed")
    signed = comment.generations.get(product)
    if not difference.endswith("/product.json was changed") or signed is None:
        return difference
    try:
        now = Bundle.open(path).product(product).generation
    except AnocoError:
        return difference
    kept = "also in what it holds" if now == signed else f"now {now}"
    return f"{difference} (generation {signed} was signed, {kept})"
