"""A small signed bundle with a history, keys to sign it with, and what can be done to it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from bundle_edits import edit_document
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge import Bundle
from anoco_edge.bundle.signatures.checking import check_signature, covered_digests
from anoco_edge.bundle.signatures.commits import CommitSigner
from anoco_edge.bundle.signatures.keys import SecretKey
from anoco_edge.bundle.signatures.signing import sign_bundle
from anoco_edge.bundle.signatures.statement import Statement
from anoco_edge.teaching import NewPicture, Settings, Teacher

ENGINE = "onnxruntime"
ENGINEER = SecretKey(bytes(range(8)), bytes(range(32)))
STRANGER = SecretKey(bytes(8), bytes(32))
STATION = SecretKey(b"station!", bytes(reversed(range(32))))
BOTH = [ENGINEER.public, STATION.public]


def picture(seed: int) -> NewPicture:
    return NewPicture.from_array(f"r{seed}.png", textured_picture(seed))


def make_signed_bundle(path: Path, key: SecretKey = ENGINEER) -> Teacher:
    """Teach two parts, set a threshold (generation 2), and sign the bundle; return its teacher."""
    make_tiny_bundle(path)
    teacher = Teacher.open(path, ENGINE)
    teacher.enroll([picture(1), picture(2)], "part")
    teacher.configure_by(lambda _: Settings({}, threshold=0.5), "part", change="threshold")
    sign_bundle(Bundle.open(path), key)
    return teacher


def signing_teacher(path: Path) -> Teacher:
    """Return a teacher whose changes are signed by the key of a station."""
    teacher = Teacher.open(path, ENGINE)
    teacher.bundle.signer = CommitSigner(STATION, lambda p: check_signature(p, BOTH), "press-3")
    return teacher


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def product(path: Path) -> Path:
    """The folder of the only product."""
    (found,) = path.glob("products/*")
    return found


def statement(path: Path) -> Path:
    (found,) = path.glob("signatures/*.txt")
    return found


def lower_threshold(path: Path) -> None:
    """Change the threshold and compute the checksum of the document again, as an attacker would."""
    edit_document(product(path) / "product.json", lambda d: d["threshold"].update(value=0.9))


def sign_by_another(path: Path) -> None:
    shutil.rmtree(path / "signatures")
    sign_bundle(Bundle.open(path), STRANGER)


def replace_statement(path: Path) -> None:
    """Put a statement there that fits the changed files, under the signature of the old one."""
    lower_threshold(path)
    statement(path).write_bytes(Statement(covered_digests(path)).to_bytes())


TAMPERINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "bank": (lambda p: flip(product(p) / "bank-1.safetensors"), "bank-1.safetensors was cha"),
    "backbone": (lambda p: flip(p / "backbone.onnx"), "backbone.onnx was changed"),
    "threshold": (lower_threshold, "/product.json was changed (generation 2 was signed, also"),
    "no signature": (lambda p: shutil.rmtree(p / "signatures"), "is not signed"),
    "no minisig": (lambda p: statement(p).with_suffix(".txt.minisig").unlink(), "is not signed"),
    "another key": (sign_by_another, f"signed by key {STRANGER.public.number}, which is not"),
    "statement": (replace_statement, f"is not what key {ENGINEER.public.number} signed"),
    "statement edited": (lambda p: flip(statement(p)), "is not what key"),
    "renamed": (
        lambda p: (p / "selftest.safetensors").rename(p / "other.safetensors"),
        "selftest.safetensors is missing, and 1 more",
    ),
    "extra": (lambda p: (product(p) / "x").write_text("x"), "/x was added"),
    "extra history": (
        lambda p: shutil.copy(product(p) / "product.json", product(p) / "history/product-9.json"),
        "product-9.json was added",
    ),
    "in signatures": (lambda p: (p / "signatures/x.txt").write_text("x"), "x.txt was added"),
    "rollback": (
        lambda p: shutil.copy(product(p) / "history/product-1.json", product(p) / "product.json"),
        "product.json was changed (generation 2 was signed, now 1)",
    ),
    "a product less": (lambda p: shutil.rmtree(p / "products"), "is missing, and"),
    "link": (lambda p: (p / "products/x").symlink_to("/etc"), "is a link"),
}
