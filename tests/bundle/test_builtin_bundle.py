"""A bundle from the built-in backbone: complete or not there, and never from a damaged install."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import tree
from tiny_bundle import write_good_pictures

from anoco_edge import Detector
from anoco_edge.bundle import Bundle, builtin, create_builtin_bundle, open_builtin
from anoco_edge.errors import BundleError, UsageError
from anoco_edge.teaching import NewPicture, Teacher


def test_a_new_bundle_holds_the_packaged_files(tmp_path: Path) -> None:
    bundle = create_builtin_bundle(tmp_path / "line.anoco")
    packaged = open_builtin()
    assert bundle.manifest.files == packaged.manifest.files
    assert bundle.manifest.backbone == packaged.manifest.backbone
    assert bundle.manifest.tools == packaged.manifest.tools
    assert bundle.manifest.parity == packaged.manifest.parity
    assert bundle.manifest.created > packaged.manifest.created
    assert bundle.products() == [] and bundle.strangers() == []
    assert len(list(bundle.verify())) == len(bundle.manifest.files) + 1


def test_what_is_packaged_is_whole() -> None:
    packaged = open_builtin()
    assert len(list(packaged.verify())) == len(packaged.manifest.files) + 1
    assert packaged.strangers() == []
    assert any(record.path.endswith("/LICENSE") for record in packaged.manifest.files)


def test_products_appear_together_with_the_bundle(tmp_path: Path) -> None:
    good = [NewPicture.from_file(str(path)) for path in write_good_pictures(tmp_path / "good", 2)]
    path = tmp_path / "line.anoco"

    def teach(new: Bundle) -> None:
        assert not path.exists()
        Teacher.open(new).enroll(good)

    create_builtin_bundle(path, prepare=teach)
    assert Detector.open(path).inspect(good[0].rgb).verdict == "good"


def test_what_fails_while_it_is_prepared_leaves_nothing(tmp_path: Path) -> None:
    def fail(new: Bundle) -> None:
        raise UsageError("no references")

    with pytest.raises(UsageError, match="no references"):
        create_builtin_bundle(tmp_path / "line.anoco", prepare=fail)
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_that_exists_is_replaced_only_when_that_is_asked_for(tmp_path: Path) -> None:
    path = create_builtin_bundle(tmp_path / "line.anoco").path
    with pytest.raises(UsageError, match="exists already"):
        create_builtin_bundle(path)
    (path / "manifest.json").write_text("{}")
    assert create_builtin_bundle(path, overwrite=True).products() == []


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the packaged folder that may be damaged."""
    folder = tmp_path / "installed"
    shutil.copytree(builtin.BUILTIN_FOLDER, folder)
    monkeypatch.setattr(builtin, "BUILTIN_FOLDER", folder)
    return folder


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["backbone.onnx", "selftest.safetensors", "manifest.json", "LICENSES/NOTICE.txt"]
)
@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_damaged_install_makes_no_bundle(installed: Path, name: str, damage: object) -> None:
    assert callable(damage)
    damage(installed / name)
    with pytest.raises(BundleError) as caught:
        create_builtin_bundle(installed.parent / "line.anoco")
    said = str(caught.value)
    assert said.startswith("the built-in backbone of this installation is damaged: ")
    assert said.endswith("pip install --force-reinstall --no-deps anoco-edge")
    assert [path.name for path in installed.parent.iterdir()] == ["installed"]


def test_reading_the_packaged_bundle_changes_nothing(installed: Path) -> None:
    before = tree(installed)
    pictures = write_good_pictures(installed.parent / "good", 2)
    new = [NewPicture.from_file(str(path)) for path in pictures]
    change = Teacher.open(open_builtin()).enroll(new, commit=False)
    assert change.product.generation == 1
    assert tree(installed) == before


def test_where_a_new_bundle_may_be_made(tmp_path: Path) -> None:
    assert builtin.can_create(tmp_path / "line.anoco")
    assert not builtin.can_create(tmp_path / "line")
    assert not builtin.can_create(tmp_path / "gone" / "line.anoco")
    (tmp_path / "there.anoco").mkdir()
    assert not builtin.can_create(tmp_path / "there.anoco")
    (tmp_path / "link.anoco").symlink_to("gone.anoco")
    assert not builtin.can_create(tmp_path / "link.anoco")
