"""A link or a special file inside a bundle is refused.

Nothing is read, written or deleted through it, and nothing waits for it.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run_cli
from native_controller import Open, controller
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.generations import prune, undo
from anoco_edge.detector import Detector
from anoco_edge.errors import AnocoError, BundleError, StorageError
from anoco_edge.storage.beneath import Directory
from anoco_edge.storage.locks import LOCK, locked
from anoco_edge.teaching import NewPicture, Teacher

__all__ = ["controller"]  # the fixture is shared, and pytest finds it by this name

PART = Path("products/part")


def frames(*seeds: int) -> list[NewPicture]:
    return [NewPicture.from_array(f"frame{s}", textured_picture(s)) for s in seeds]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a bundle with two generations of `part`; tests copy it and never change it."""
    path = make_tiny_bundle(tmp_path_factory.mktemp("master") / "tiny.anoco").path
    Teacher.open(path).enroll(frames(1, 2), "part")
    Teacher.open(path).enroll(frames(3), "part")
    return path


@pytest.fixture
def enrolled(master: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(master, tmp_path / "tiny.anoco"))


def everything(path: Path) -> dict[str, bytes]:
    """List every file below the folder, those behind links included."""
    found = (Path(folder, f) for folder, _, files in os.walk(path, followlinks=True) for f in files)
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in found if p.name != LOCK}


def under_lock(change: Callable[[Bundle, str], object]) -> Callable[[Path], object]:
    def run(path: Path) -> None:
        bundle = Bundle.open(path)
        with locked(bundle.product_folder("part"), 0, print):
            change(bundle, "part")

    return run


COMMANDS: dict[str, Callable[[Path], object]] = {
    "inspect": lambda path: Detector.open(path, "part").inspect(textured_picture(1)),
    "verify": lambda path: list(Bundle.open(path).verify()),
    "strangers": lambda path: Bundle.open(path).strangers(),
    "enroll": lambda path: Teacher.open(path).enroll(frames(7), "part"),
    "undo": under_lock(undo),
    "prune": under_lock(prune),
}
CHANGES = ("enroll", "undo", "prune")

# These are the places where a link may lie, with the commands that come across each.
LINKS = {
    "manifest.json": tuple(COMMANDS),
    "backbone.onnx": tuple(COMMANDS),
    "LICENSES": tuple(COMMANDS),
    "products": tuple(COMMANDS),
    "products/part": tuple(COMMANDS),
    "products/part/product.json": tuple(COMMANDS),
    "products/part/bank-2.safetensors": ("inspect", "verify", "enroll", "prune"),
    "products/part/bank-1.safetensors": ("verify", "undo", "prune"),
    "products/part/references": tuple(COMMANDS),
    "products/part/history": ("verify", "strangers", *CHANGES),
    "products/part/history/product-1.json": ("verify", "strangers", *CHANGES),
    "products/part/.lock": CHANGES,
}


@pytest.mark.parametrize("name", LINKS)
def test_a_link_is_refused_and_nothing_happens_behind_it(enrolled: Path, name: str) -> None:
    outside = enrolled.parent / "outside"
    outside.mkdir()
    link, behind = enrolled / name, outside / Path(name).name
    link.rename(behind)
    link.symlink_to(behind)
    before = everything(enrolled.parent)
    for command in LINKS[name]:
        with pytest.raises(BundleError) as caught:
            COMMANDS[command](enrolled)
        expected = f"{link} is a link; a bundle contains no links: copy the file itself"
        assert str(caught.value) == expected, command
        assert everything(enrolled.parent) == before, command


def test_a_link_inside_the_bundle_is_refused_too(enrolled: Path) -> None:
    (enrolled / "graph").write_bytes((enrolled / "backbone.onnx").read_bytes())
    (enrolled / "backbone.onnx").unlink()
    (enrolled / "backbone.onnx").symlink_to("graph")
    with pytest.raises(BundleError, match=r"backbone.onnx is a link"):
        Bundle.open(enrolled)


def test_a_bundle_behind_a_link_works(enrolled: Path) -> None:
    """The user made that link, and everything below it belongs to the bundle."""
    link = enrolled.parent / "current.anoco"
    link.symlink_to(enrolled)
    for command in COMMANDS.values():
        command(link)
    assert Bundle.open(enrolled).product("part").generation == 2


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _socket(path: Path) -> None:
    with Directory.open(path.parent), socket.socket(socket.AF_UNIX) as made:
        before = Path.cwd()
        os.chdir(path.parent)  # the name of a socket has at most 108 bytes
        try:
            made.bind(path.name)
        finally:
            os.chdir(before)


def _device(path: Path) -> None:
    try:
        # this is /dev/zero: reading it never ends
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making a device is not permitted here")


@pytest.mark.parametrize(
    ("make", "kind"),
    [(_fifo, "a FIFO"), (_folder, "a folder"), (_socket, "a socket"), (_device, "a device")],
)
@pytest.mark.parametrize("name", sorted({*LINKS, "products/part/history/product-9.json"}))
def test_special_files_are_refused_and_not_waited_for(
    enrolled: Path, name: str, make: Callable[[Path], None], kind: str
) -> None:
    path = enrolled / name
    wanted = "a folder" if path.is_dir() else "a file"
    if kind == wanted:
        return
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    make(path)
    refused = set()
    for command, run in COMMANDS.items():
        try:
            run(enrolled)
        except AnocoError as error:
            assert error.exit_code in (2, 4), error
            if str(error) == f"{path} is {kind}, not {wanted}; remove it, or copy the bundle again":
                refused.add(command)
        assert path.exists(), command
    assert refused, "no command said what is there"


def test_a_fifo_in_history_is_one_line_on_the_command_line(enrolled: Path) -> None:
    fifo = enrolled / PART / "history" / "product-3.json"
    os.mkfifo(fifo)
    for command in (("verify",), ("references", "prune"), ("references", "undo")):
        ran = run_cli(*command, enrolled)
        assert ran.code == 4 and f"{fifo} is a FIFO, not a file" in ran.err


def test_a_temporary_name_that_is_taken_is_not_written_through(enrolled: Path) -> None:
    """Without O_EXCL, a link in the place of a half-written file would be written through."""
    precious = enrolled.parent / "precious"
    precious.write_bytes(b"old")
    with Directory.open(enrolled / PART) as folder:
        (enrolled / PART / f".tmp-mask.png-{os.getpid()}").symlink_to(precious)
        folder.put("mask.png", b"new")
    assert precious.read_bytes() == b"old"
    assert (enrolled / PART / "mask.png").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["../x", "/etc/hostname", "a//b", "a/./b", "", "."])
def test_names_that_leave_the_directory_are_refused(enrolled: Path, name: str) -> None:
    with (
        Directory.open(enrolled) as folder,
        pytest.raises(BundleError, match="points outside the bundle"),
    ):
        folder.open_file(name)


def test_a_document_of_a_gigabyte_is_not_read(enrolled: Path) -> None:
    path = enrolled / PART / "product.json"
    with path.open("r+b") as stream:
        stream.truncate(2**30)
    with pytest.raises(BundleError, match=r"product.json has 1073741824 bytes, more than"):
        Bundle.open(enrolled).product("part")


# ---- what a killed process left


def test_files_that_no_generation_names_are_swept_by_every_change(enrolled: Path) -> None:
    left = [
        "bank-9.safetensors",
        "baseline-9.safetensors",
        "mask-0123456789abcdef.png",
        "references/0123456789abcdef.png",
        "calibration/0123456789abcdef.png",
        "references/.tmp-0123456789abcdef.png-77",
        "history/.tmp-product-9.json-77",
        ".tmp-product.json-77",
    ]
    theirs = enrolled / PART / "references" / "notes.txt"
    for change in CHANGES:
        copy = Path(shutil.copytree(enrolled, enrolled.parent / f"{change}.anoco"))
        whole = {p.relative_to(copy) for p in (copy / PART).rglob("*") if p.is_file()}
        for name in left:
            (copy / PART / name).parent.mkdir(exist_ok=True)
            (copy / PART / name).write_bytes(b"left by a kill")
        (copy / theirs.relative_to(enrolled)).write_bytes(b"mine")
        COMMANDS[change](copy)
        bundle = Bundle.open(copy)
        assert [p.name for p in bundle.strangers()] == ["notes.txt"], change
        list(bundle.verify())
        if change != "prune":
            assert all((copy / name).exists() for name in whole), change


def test_where_a_generation_cannot_be_read_only_half_written_files_go(enrolled: Path) -> None:
    """A generation that cannot be read may name any file, so only half-written files go."""
    (enrolled / PART / "history" / "product-1.json").write_bytes(b"damaged")
    (enrolled / PART / "bank-9.safetensors").write_bytes(b"left by a kill?")
    (enrolled / PART / ".tmp-product.json-77").write_bytes(b"left by a kill")
    Teacher.open(enrolled).enroll(frames(7), "part")
    names = {p.name for p in (enrolled / PART).iterdir()}
    assert "bank-9.safetensors" in names and "bank-1.safetensors" in names
    assert ".tmp-product.json-77" not in names


def test_a_bundle_that_was_replaced_meanwhile_is_not_taught(enrolled: Path) -> None:
    """The new bundle may have another backbone, which does not match the features of this bank."""
    teacher = Teacher.open(enrolled)
    enrolled.rename(enrolled.parent / "old")
    make_tiny_bundle(enrolled, dim=4)
    with pytest.raises(AnocoError, match="was replaced by another process meanwhile"):
        teacher.enroll(frames(7), "part")
    assert Bundle.open(enrolled).products() == []


# ---- the native library (its reader: test_native_bundle.py; its commit: test_commit.cpp)


@pytest.mark.usefixtures("use_native")
@pytest.mark.parametrize("name", ["manifest.json", *(n for n in LINKS if "products" in n)])
def test_the_native_library_teaches_through_no_link_and_waits_for_no_fifo(
    enrolled: Path, controller: Open, name: str
) -> None:
    native = controller(enrolled)
    path, behind = enrolled / name, enrolled.parent / "outside"
    path.rename(behind)
    path.symlink_to(behind)
    before = everything(enrolled.parent)
    with pytest.raises(BundleError) as caught:
        native.enroll([textured_picture(7)], ["frame7"])
    text = "is a link; a bundle contains no links: copy the file itself"
    assert str(caught.value) == f"{path} {text}"
    assert everything(enrolled.parent) == before
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BundleError, match=f"{path} is a FIFO, not a (file|folder); remove it"):
        native.enroll([textured_picture(7)], ["frame7"])


@pytest.mark.usefixtures("use_native")
def test_the_native_library_does_not_teach_a_bundle_that_was_replaced(
    enrolled: Path, controller: Open
) -> None:
    native = controller(enrolled)
    enrolled.rename(enrolled.parent / "old")
    make_tiny_bundle(enrolled, dim=4)
    with pytest.raises(StorageError, match="was replaced by another process meanwhile"):
        native.enroll([textured_picture(7)], ["frame7"])
    assert Bundle.open(enrolled).products() == []
