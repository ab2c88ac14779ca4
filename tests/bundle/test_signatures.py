"""A signed bundle is exactly what was signed; a signed change leaves no moment without one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from signed_bundle import (
    BOTH,
    ENGINEER,
    STATION,
    TAMPERINGS,
    flip,
    lower_threshold,
    make_signed_bundle,
    picture,
    signing_teacher,
)

from anoco_edge import Bundle
from anoco_edge.bundle.generations import prune, undo
from anoco_edge.bundle.signatures.checking import check_signature
from anoco_edge.bundle.signatures.signing import sign_bundle
from anoco_edge.errors import BundleError, ConflictError, SignatureError, StorageError
from anoco_edge.storage.beneath import Directory
from anoco_edge.teaching import Settings, Teacher

KEYS = [ENGINEER.public]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_signed_bundle(tmp_path_factory.mktemp("made") / "line.anoco").bundle.path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "line.anoco"))


def problem(path: Path) -> str:
    with pytest.raises(BundleError) as refused:
        check_signature(path, KEYS)
    return str(refused.value)


@pytest.mark.parametrize("what", TAMPERINGS)
def test_a_change_is_refused_and_named(path: Path, what: str) -> None:
    assert check_signature(path, KEYS).comment.generations == {"part": 2}
    tamper, words = TAMPERINGS[what]
    tamper(path)
    said = problem(path)
    assert words in said and "\n" not in said, said


@pytest.mark.parametrize("what", ["threshold", "rollback", "renamed", "extra", "another key"])
def test_documents_alone_show_most_of_it(path: Path, what: str) -> None:
    check_signature(path, KEYS, documents_only=True)
    TAMPERINGS[what][0](path)
    with pytest.raises(SignatureError):
        check_signature(path, KEYS, documents_only=True)


def test_every_change_of_a_product_ends_the_signature(path: Path) -> None:
    teacher = Teacher.open(path, "onnxruntime")
    changes: list[Callable[[], object]] = [
        lambda: teacher.enroll([picture(3)], "part"),
        lambda: teacher.calibrate([picture(k) for k in range(20, 25)], "part", accept_fewer=True),
        lambda: undo(Bundle.open(path), "part"),
        lambda: teacher.remove(["r3.png"], "part"),
        lambda: prune(Bundle.open(path), "part"),
        lambda: teacher.enroll([picture(4), picture(5)], "other"),
    ]
    for change in changes:
        check_signature(path, KEYS)
        change()
        assert "is not as key" in problem(path)
        sign_bundle(Bundle.open(path), ENGINEER)


def test_locks_and_half_written_files_do_not_matter(path: Path) -> None:
    (path / "products/part/.tmp-bank-7.safetensors-99").write_bytes(b"x")
    (path / "products/part/.lock").write_bytes(b"x")
    check_signature(path, KEYS)
    (path / "signatures/.tmp-x.txt-99").write_bytes(b"x")
    sign_bundle(Bundle.open(path), ENGINEER)
    assert not (path / "signatures/.tmp-x.txt-99").exists()
    (path / "products/part/references/.lock").write_bytes(b"x")
    assert ".lock was added" in problem(path)


def test_what_was_opened_must_be_what_was_signed(path: Path) -> None:
    state = check_signature(path, KEYS)
    bundle = Bundle.open(path)
    state.check_opened(bundle.manifest, bundle.product("part"))
    lower_threshold(path)
    with pytest.raises(SignatureError, match=r"while it was opened: products/part/product\.json"):
        state.check_opened(bundle.manifest, bundle.product("part"))


def test_time_never_falls_from_one_signature_to_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = check_signature(path, KEYS).comment.timestamp
    monkeypatch.setattr("time.time", lambda: 1000.0)  # the clock was set back
    assert sign_bundle(Bundle.open(path), ENGINEER).comment.timestamp == first + 1


# ---- changes that are signed as they are made


def changes(teacher: Teacher) -> Iterator[Callable[[], object]]:
    bundle = teacher.bundle
    yield lambda: teacher.enroll([picture(3)], "part")
    yield lambda: teacher.enroll([picture(4), picture(5)], "other")
    yield lambda: teacher.configure_by(lambda _: Settings({}, threshold=0.7), "part", change="x")
    yield lambda: undo(bundle, "part")
    yield lambda: prune(bundle, "part")
    yield lambda: teacher.remove(["r3.png"], "part")


def test_at_every_moment_of_a_signed_change_a_signature_holds(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundle is copied before and after every file that is written or removed: this is what a
    power cut would leave."""
    copies: list[Path] = []

    def copy() -> None:
        copies.append(tmp_path / f"copy-{len(copies)}.anoco")
        shutil.copytree(path, copies[-1])

    put, remove = Directory._put, Directory.remove

    def copied_put(self: Directory, *words: object) -> None:
        copy()
        put(self, *words)  # type: ignore[arg-type]
        copy()

    def copied_remove(self: Directory, name: str) -> None:
        copy()
        remove(self, name)
        copy()

    monkeypatch.setattr(Directory, "_put", copied_put)
    monkeypatch.setattr(Directory, "remove", copied_remove)
    teacher, before = signing_teacher(path), 0
    for change in changes(teacher):
        change()
        state = check_signature(path, BOTH)
        assert state.key == STATION.public and len(list(path.glob("signatures/*.txt"))) == 1
        assert (state.comment.signer, state.comment.timestamp > before) == ("press-3", True)
        before = state.comment.timestamp
    assert check_signature(path, BOTH).comment.generations["part"] == 4
    monkeypatch.undo()
    assert len(copies) > 60
    for left in copies:
        check_signature(left, BOTH)
        signing_teacher(left).configure_by(
            lambda _: Settings({}, threshold=2.0), "part", change="after"
        )
        assert check_signature(left, BOTH).comment.signer == "press-3"


def test_a_change_that_fails_leaves_the_signature_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher, put = signing_teacher(path), Directory._put

    def full(self: Directory, last: str, *words: object) -> None:
        if last == "product.json":
            raise OSError(28, "No space left on device")
        put(self, last, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Directory, "_put", full)
    with pytest.raises(StorageError, match="No space left"):
        teacher.enroll([picture(3)], "part")
    assert check_signature(path, BOTH).key == ENGINEER.public
    assert len(list(path.glob("signatures/*.txt"))) == 1
    with pytest.raises(ConflictError):
        teacher.enroll([picture(3)], "part", expected=1)


@pytest.mark.parametrize("what", ["threshold", "bank", "extra history", "another key"])
def test_what_was_tampered_with_is_neither_changed_nor_signed(path: Path, what: str) -> None:
    teacher = signing_teacher(path)
    TAMPERINGS[what][0](path)
    before = sorted(path.rglob("*"))
    with pytest.raises(BundleError):
        teacher.configure_by(lambda _: Settings({}, threshold=0.7), "part", change="x")
    after = [p for p in sorted(path.rglob("*")) if p.name != ".lock"]
    assert after == [p for p in before if p.name != ".lock"]
    with pytest.raises(BundleError):
        check_signature(path, BOTH)


def test_a_file_that_is_exchanged_during_a_change_is_not_signed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement is computed from what was checked and from what is written, not from files."""
    teacher, put = signing_teacher(path), Directory._put

    def exchanging(self: Directory, last: str, *words: object) -> None:
        if last == "product.json":
            flip(path / "products/part/bank-1.safetensors")
        put(self, last, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Directory, "_put", exchanging)
    teacher.configure_by(lambda _: Settings({}, threshold=0.7), "part", change="x")
    with pytest.raises(SignatureError, match=r"bank-1\.safetensors was changed"):
        check_signature(path, BOTH)
