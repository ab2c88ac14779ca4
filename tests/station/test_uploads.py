"""Files that strangers send: pictures that claim too much, archives that want out."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from picture_files import bomb, png
from PIL import Image
from tiny_bundle import make_tiny_bundle

from anoco_edge.errors import AnocoError, BundleError, PictureError, StorageError, UsageError
from anoco_edge.station.parts.pictures import Pictures
from anoco_edge.station.products import archives
from anoco_edge.station.products.archives import unpack_bundle
from anoco_edge.station.products.uploads import KEEP_SECONDS, Uploads


def test_a_picture_is_kept_by_its_content_for_a_week(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    digest = uploads.add(png(40, 30), "a.png")
    assert uploads.add(png(40, 30), "b.png") == digest
    assert uploads.picture(digest, "x.png").width == 40
    path = tmp_path / "uploads" / digest
    os.utime(path, (1_000_000, 1_000_000))
    assert uploads.sweep(1_000_000 + KEEP_SECONDS - 1) == 0
    assert uploads.sweep(1_000_000 + KEEP_SECONDS + 1) == 1
    for name in (digest, "../../etc/passwd", "x" * 32):
        with pytest.raises(UsageError):
            uploads.read(name)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (bomb(60_000, 60_000), "60000x60000"),
        (bomb(10_000, 6_000), "60 million pixels"),
        (bomb(500, 500), "damaged or incomplete"),
        (b"<html>", "not a picture"),
        (b"", "empty"),
        (b"%PDF-1.4" * 99, "not a picture"),
    ],
)
def test_a_bomb_or_no_picture_is_refused_before_it_is_decoded(
    tmp_path: Path, data: bytes, words: str
) -> None:
    with pytest.raises(PictureError, match=words):
        Uploads(tmp_path).add(data, "a.png")
    assert not (tmp_path / "uploads").exists()


# ---- pictures of the store


def test_pictures_stay_inside_their_folder(tmp_path: Path) -> None:
    inside = tmp_path / "store"
    (inside / "pictures").mkdir(parents=True)
    (inside / "pictures/a.png").write_bytes(png(400, 300))
    (tmp_path / "secret.png").write_bytes(png(20, 20))
    (inside / "pictures/link.png").symlink_to(tmp_path / "secret.png")
    pictures = Pictures(inside)
    assert pictures.read("pictures/a.png").media_type == "image/png"
    copy = pictures.read("pictures/a.png", 100)
    assert copy.media_type == "image/jpeg" and Image.open(io.BytesIO(copy.data)).size == (160, 120)
    assert pictures.read("pictures/a.png", 150) is copy
    assert pictures.read("pictures/a.png", 999).media_type == "image/png", "never enlarged"
    for path in ("../secret.png", "pictures/link.png", "/etc/passwd", "pictures", "pictures/no"):
        with pytest.raises(PictureError, match="there is no picture"):
            pictures.read(path)


# ---- archives

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    bundle = make_tiny_bundle(tmp_path_factory.mktemp("made") / "line.anoco")
    found = [path for path in bundle.path.rglob("*") if path.is_file()]
    return {str(path.relative_to(bundle.path.parent)): path.read_bytes() for path in found}


def tar(path: Path, files: Files, *more: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in more:
            archive.addfile(member)
    return path


def zipped(path: Path, files: Files, *more: zipfile.ZipInfo) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        for member in more:
            archive.writestr(member, "../../../etc/passwd")
    return path


@pytest.mark.parametrize("make", [tar, zipped])
@pytest.mark.parametrize("outer", [True, False])
def test_a_bundle_comes_out_as_it_went_in(
    tmp_path: Path, files: Files, make: Callable[..., Path], outer: bool
) -> None:
    inside = files if outer else {n.partition("/")[2]: data for n, data in files.items()}
    made = unpack_bundle(make(tmp_path / "archive", inside), tmp_path / "new.anoco")
    assert made.path == tmp_path / "new.anoco" and list(made.verify())
    with pytest.raises(StorageError, match="exists already"):
        unpack_bundle(tmp_path / "archive", tmp_path / "new.anoco")


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


def zip_link(name: str) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr = 0o120777 << 16
    return made


def hostile(tmp_path: Path, files: Files) -> dict[str, Path]:
    made = {
        "symbolic link": tar(
            tmp_path / "1", files, member("line.anoco/x", tarfile.SYMTYPE, "/etc")
        ),
        "hard link": tar(
            tmp_path / "2", files, member("line.anoco/x", tarfile.LNKTYPE, "/etc/passwd")
        ),
        "device": tar(tmp_path / "3", files, member("line.anoco/x", tarfile.CHRTYPE)),
        "pipe": tar(tmp_path / "4", files, member("line.anoco/x", tarfile.FIFOTYPE)),
        "zip link": zipped(tmp_path / "5", files, zip_link("line.anoco/x")),
        "through a link": tar(
            tmp_path / "6", {}, member("line.anoco", tarfile.SYMTYPE, str(tmp_path))
        ),
    }
    for number, name in enumerate(
        ("../escaped", "/escaped", "line.anoco/../../escaped", "a\\..\\b")
    ):
        made[f"tar {name}"] = tar(tmp_path / f"t{number}", {**files, name: b"x"})
        made[f"zip {name}"] = zipped(tmp_path / f"z{number}", {**files, name: b"x"})
    made["damaged"] = tmp_path / "7"
    made["damaged"].write_bytes(tar(tmp_path / "8", files).read_bytes()[:-400])
    changed = {n: d + b" " if n.endswith("backbone.onnx") else d for n, d in files.items()}
    made["changed"] = tar(tmp_path / "9", changed)
    made["no bundle"] = tar(tmp_path / "10", {"a/readme.txt": b"hello"})
    return made


def test_nothing_escapes_and_nothing_is_left(tmp_path: Path, files: Files) -> None:
    place = tmp_path / "place"
    place.mkdir()
    for what, archive in hostile(tmp_path, files).items():
        before = {path for path in tmp_path.rglob("*") if "place" not in path.parts}
        with pytest.raises(AnocoError):
            unpack_bundle(archive, place / "new.anoco")
        assert list(place.iterdir()) == [], what
        assert {p for p in tmp_path.rglob("*") if "place" not in p.parts} == before, what


def test_an_archive_that_unpacks_to_too_much(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tar(tmp_path / "zeros", {"line.anoco/zeros": b"\0" * 3_000_000})
    assert archive.stat().st_size < 10_000
    with pytest.raises(BundleError, match="more than is allowed"):
        unpack_bundle(archive, tmp_path / "new.anoco", most_bytes=2_000_000)
    monkeypatch.setattr(archives, "MOST_FILES", 3)
    with pytest.raises(BundleError, match="over 3 files"):
        unpack_bundle(tar(tmp_path / "many", files), tmp_path / "new.anoco")
