"""A bundle opens with exactly what was written, or it is refused with the name of the bad file."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundle_edits import PRODUCT, edit_document, files_with_content, rewrite_bank, write_and_record
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

from anoco_edge.bundle import Bundle, create_bundle, find_bundle
from anoco_edge.bundle.checksum import seal
from anoco_edge.detector import Detector
from anoco_edge.errors import BundleError, StorageError, UsageError
from anoco_edge.teaching import NewPicture, Settings, Teacher


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a product with two generations, a region and a mask; tests only copy it."""
    folder = tmp_path_factory.mktemp("master")
    path = make_tiny_bundle(folder / "tiny.anoco").path
    pictures = [NewPicture.from_file(p) for p in write_good_pictures(folder / "good", 3)]
    mask = np.zeros((80, 96), np.uint8)
    mask[:20, :24] = 255
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, "PNG")
    teacher = Teacher.open(path)
    settings = Settings({}, region=[(0, 0), (72, 80)], mask=buffer.getvalue())
    teacher.enroll(pictures[:2], "part", settings)
    teacher.enroll(pictures[2:], "part")
    return path


@pytest.fixture
def enrolled(master: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(master, tmp_path / "tiny.anoco"))


def verify(path: Path) -> list[Path]:
    return list(Bundle.open(path).verify())


# ---- one byte, one file


def test_an_untouched_bundle_verifies_every_file_it_has(enrolled: Path) -> None:
    checked = {p.relative_to(enrolled) for p in verify(enrolled)}
    assert checked == set(files_with_content(enrolled))
    names = {p.name for p in checked}
    assert {"manifest.json", "product.json", "product-1.json", "product-2.json"} <= names
    assert {"bank-1.safetensors", "bank-2.safetensors", "backbone.onnx", "NOTICE"} <= names
    assert sum(name.startswith("mask-") for name in names) == 1
    assert sum(p.parent.name == "references" for p in checked) == 3
    assert Bundle.open(enrolled).strangers() == []


def flips(path: Path) -> Iterator[tuple[Path, int, int]]:
    """Return the first, middle and last byte of each file, and then bytes at random places."""
    files = files_with_content(path)
    for name in files:
        size = (path / name).stat().st_size
        yield from ((name, at, 0x01) for at in (0, size // 2, size - 1))
    rng = np.random.default_rng(11)
    for _ in range(400):
        name = files[rng.integers(len(files))]
        size = (path / name).stat().st_size
        yield name, int(rng.integers(size)), int(rng.integers(1, 256))


def test_any_changed_byte_is_found_and_the_file_named(enrolled: Path) -> None:
    for name, at, bits in flips(enrolled):
        right = (enrolled / name).read_bytes()
        wrong = bytearray(right)
        wrong[at] ^= bits
        (enrolled / name).write_bytes(wrong)
        with pytest.raises(BundleError) as caught:
            verify(enrolled)
        assert str(enrolled / name) in str(caught.value), (name, at, bits)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == 4
        (enrolled / name).write_bytes(right)
    verify(enrolled)


def test_a_file_cut_short_is_found(enrolled: Path) -> None:
    for name in files_with_content(enrolled):
        right = (enrolled / name).read_bytes()
        for kept in (0, len(right) // 2, len(right) - 1):
            (enrolled / name).write_bytes(right[:kept])
            with pytest.raises(BundleError, match=name.name):
                verify(enrolled)
        (enrolled / name).write_bytes(right)


def test_a_missing_file_is_found(enrolled: Path) -> None:
    for name in files_with_content(enrolled):
        if name.name == "product-1.json":
            continue  # an older generation may be missing, because prune deletes those
        right = (enrolled / name).read_bytes()
        (enrolled / name).unlink()
        with pytest.raises(BundleError, match=r"no manifest|is missing") as caught:
            verify(enrolled)
        assert name.name in str(caught.value)
        (enrolled / name).write_bytes(right)


def test_size_and_presence_are_checked_without_hashing(enrolled: Path) -> None:
    (enrolled / "backbone.onnx").write_bytes(b"short")
    with pytest.raises(BundleError, match=r"backbone.onnx has 5 bytes instead of"):
        Bundle.open(enrolled)
    (enrolled / "backbone.onnx").unlink()
    with pytest.raises(BundleError, match=r"backbone.onnx is missing"):
        Bundle.open(enrolled)


def test_a_changed_byte_is_found_when_serving_too(enrolled: Path) -> None:
    for name in ("backbone.onnx", PRODUCT / "bank-2.safetensors"):
        right = (enrolled / name).read_bytes()
        (enrolled / name).write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
        with pytest.raises(BundleError, match=f"{Path(name).name} is not what was written"):
            Detector.open(enrolled)
        (enrolled / name).write_bytes(right)
    Detector.open(enrolled)


# ---- what a document may not say


@pytest.mark.parametrize("outside", ["../x", "LICENSES/../../x", "/etc/hostname", "a\\..\\x", ""])
def test_a_path_that_leaves_the_bundle_is_refused(enrolled: Path, outside: str) -> None:
    (enrolled.parent / "x").write_bytes(b"")
    edit_document(enrolled / "manifest.json", lambda d: d["files"][0].update(path=outside))
    with pytest.raises(BundleError, match=r"manifest.json.*points outside the bundle"):
        Bundle.open(enrolled)


def test_a_product_may_not_point_outside_either(enrolled: Path) -> None:
    edit_document(
        enrolled / PRODUCT / "product.json", lambda d: d["bank"].update(path="../../../x")
    )
    with pytest.raises(BundleError, match=r"product.json.*points outside the bundle"):
        Bundle.open(enrolled).product()


@pytest.mark.parametrize("name", ["backbone.onnx", "LICENSES"])
def test_a_link_to_the_outside_is_refused(enrolled: Path, name: str) -> None:
    elsewhere = enrolled.parent / f"elsewhere-{name}"
    (enrolled / name).rename(elsewhere)
    (enrolled / name).symlink_to(elsewhere)
    with pytest.raises(BundleError, match=f"{name} is a link; a bundle contains no links: copy"):
        Bundle.open(enrolled)


def test_a_link_that_leads_nowhere_is_refused(enrolled: Path) -> None:
    (enrolled / "backbone.onnx").unlink()
    (enrolled / "backbone.onnx").symlink_to("backbone.onnx")
    with pytest.raises(BundleError, match=r"backbone.onnx is a link"):
        Bundle.open(enrolled)


@pytest.mark.parametrize(
    "name", ["manifest.json", "products/part/product.json", "products/part/history/product-1.json"]
)
def test_a_newer_schema_says_update(enrolled: Path, name: str) -> None:
    # A newer schema has fields that are unknown here, so the message must be about the version.
    edit_document(enrolled / name, lambda d: d.update(schema_version=2, invented="later"))
    with pytest.raises(BundleError, match=r"has schema version 2, this program knows 1") as caught:
        verify(enrolled)
    assert caught.value.hint == "update anoco-edge"
    assert str(enrolled / name) in caught.value.what


@pytest.mark.parametrize("name", ["manifest.json", "products/part/product.json"])
@pytest.mark.parametrize(
    "change",
    [{"invented": 1}, {"schema_version": 0}, {"schema_version": "x"}, {"checksum": "0" * 63}],
)
def test_what_the_schema_does_not_know_is_refused(
    enrolled: Path, name: str, change: dict[str, Any]
) -> None:
    path = enrolled / name
    document = {**json.loads(path.read_bytes()), **change}
    path.write_bytes(json.dumps(document).encode() if "checksum" in change else seal(document))
    with pytest.raises(BundleError) as caught:
        verify(enrolled)
    assert str(path) in str(caught.value)
    assert next(iter(change)) in str(caught.value)


@pytest.mark.parametrize("content", [b"[]", b"null", b"\xff\xfe\x00", b"{", b"3", b""])
def test_a_manifest_that_is_no_document_is_refused(enrolled: Path, content: bytes) -> None:
    (enrolled / "manifest.json").write_bytes(content)
    with pytest.raises(BundleError, match=r"manifest.json"):
        Bundle.open(enrolled)


def test_a_valid_document_without_a_right_checksum_is_refused(enrolled: Path) -> None:
    path = enrolled / PRODUCT / "product.json"
    document = json.loads(path.read_bytes())
    document["threshold"]["value"] *= 2
    path.write_text(json.dumps(document, indent=1) + "\n")
    with pytest.raises(BundleError, match=r"product.json is not what was written"):
        Detector.open(enrolled)


def test_a_product_in_the_folder_of_another_is_refused(enrolled: Path) -> None:
    (enrolled / PRODUCT).rename(enrolled / "products/other")
    with pytest.raises(BundleError, match="belongs to product 'part'"):
        Bundle.open(enrolled).product("other")


# ---- a bank that must not score, though every hash is right


def _nan(tensors: dict[str, np.ndarray]) -> None:
    tensors["features"][3, 1] = np.nan


def _infinity(tensors: dict[str, np.ndarray]) -> None:
    tensors["features"][0, 0] = np.inf


def _zero_row(tensors: dict[str, np.ndarray]) -> None:
    tensors["features"][2] = 0


def _other_dim(tensors: dict[str, np.ndarray]) -> None:
    tensors["features"] = tensors["features"][:, :5]


def _empty(tensors: dict[str, np.ndarray]) -> None:
    for name in tensors:
        tensors[name] = tensors[name][:0]


def _integers(tensors: dict[str, np.ndarray]) -> None:
    tensors["features"] = tensors["features"].astype(np.int32)


def _no_norms(tensors: dict[str, np.ndarray]) -> None:
    del tensors["norms"]


def _short_column(tensors: dict[str, np.ndarray]) -> None:
    tensors["row"] = tensors["row"][:-1]


def _unknown_reference(tensors: dict[str, np.ndarray]) -> None:
    tensors["reference"][-1] = 3


def _negative_reference(tensors: dict[str, np.ndarray]) -> None:
    tensors["reference"][0] = -1


def _row_off_the_grid(tensors: dict[str, np.ndarray]) -> None:
    tensors["row"][0] = 4


def _column_off_the_grid(tensors: dict[str, np.ndarray]) -> None:
    tensors["col"][0] = -1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_nan, "patch 3 contains NaN or infinity"),
        (_infinity, "patch 0 contains NaN or infinity"),
        (_zero_row, "zero norm"),
        (_other_dim, "holds 5 features per patch, the backbone gives 8"),
        (_empty, "no reference patch"),
        (_integers, "int32"),
        (_no_norms, "expected"),
        (_short_column, "provenance columns"),
        (_unknown_reference, "names references that do not exist"),
        (_negative_reference, "names references that do not exist"),
        (_row_off_the_grid, "names rows that do not exist"),
        (_column_off_the_grid, "names columns that do not exist"),
    ],
)
def test_a_bank_that_could_give_a_wrong_score_gives_none(
    enrolled: Path, change: Callable[[dict[str, np.ndarray]], None], says: str
) -> None:
    Detector.open(enrolled).inspect(textured_picture(1))
    rewrite_bank(enrolled, change)
    with pytest.raises(BundleError, match=says) as caught:
        Detector.open(enrolled).inspect(textured_picture(1))
    assert caught.value.exit_code == 4
    assert "bank-2.safetensors" in str(caught.value)
    with pytest.raises(BundleError, match=says):
        verify(enrolled)


def test_norms_are_computed_from_the_features_never_believed(enrolled: Path) -> None:
    before = Detector.open(enrolled).inspect(textured_picture(1)).score
    rewrite_bank(enrolled, lambda tensors: tensors.update(norms=tensors["norms"] * 3))
    assert Detector.open(enrolled).inspect(textured_picture(1)).score == before


def test_a_bank_that_is_no_safetensors_file_is_refused(enrolled: Path) -> None:
    new = write_and_record(enrolled / PRODUCT / "bank-2.safetensors", b"\x80\x04pickle?")
    edit_document(enrolled / PRODUCT / "product.json", lambda d: d.update(bank=new))
    with pytest.raises(BundleError, match="is not a reference bank"):
        Detector.open(enrolled)


# ---- finding, choosing, creating


def test_where_there_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no bundle at"):
        Bundle.open(tmp_path / "nothing.anoco")
    with pytest.raises(BundleError, match=r"has no manifest.json"):
        Bundle.open(tmp_path)


def test_the_product_is_found_by_itself_only_when_there_is_one(enrolled: Path) -> None:
    bundle = Bundle.open(enrolled)
    assert bundle.product().name == "part"
    with pytest.raises(UsageError, match=r"no product 'nut'; it has: part"):
        bundle.product("nut")
    Teacher.open(enrolled).enroll([NewPicture.from_array("a", textured_picture(7))], "nut")
    with pytest.raises(UsageError, match="several products: nut, part"):
        bundle.product()
    assert bundle.product("nut").references[0].name == "a"
    verify(enrolled)


def test_a_bundle_without_products_says_how_to_teach_it(tiny_bundle: Bundle) -> None:
    with pytest.raises(BundleError, match="anoco-edge enroll"):
        tiny_bundle.product()
    with pytest.raises(UsageError, match="it has none yet"):
        tiny_bundle.product("x")
    assert len(list(tiny_bundle.verify())) == 5


def test_find_bundle_wants_exactly_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none in this directory"):
        find_bundle(tmp_path)
    first = make_tiny_bundle(tmp_path / "a.anoco").path
    (tmp_path / "empty.anoco").mkdir()
    assert find_bundle(tmp_path) == first
    make_tiny_bundle(tmp_path / "b.anoco")
    with pytest.raises(UsageError, match=r"a.anoco, b.anoco"):
        find_bundle(tmp_path)


def _again(bundle: Bundle, path: Path, *, overwrite: bool) -> Bundle:
    manifest = bundle.manifest
    return create_bundle(
        path,
        backbone=manifest.backbone,
        contract=manifest.input,
        parity={"again": True},
        tools={},
        files={f.path: (bundle.path / f.path).read_bytes() for f in manifest.files},
        overwrite=overwrite,
    )


def test_creating_replaces_a_bundle_only_when_told_and_nothing_else_ever(
    tiny_bundle: Bundle, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="exists already"):
        _again(tiny_bundle, tiny_bundle.path, overwrite=False)
    assert _again(tiny_bundle, tiny_bundle.path, overwrite=True).manifest.parity == {"again": True}
    mine = tmp_path / "holiday"
    mine.mkdir()
    (mine / "photo.jpg").write_bytes(b"sea")
    with pytest.raises(StorageError, match="is not a bundle, so it is not overwritten"):
        _again(tiny_bundle, mine, overwrite=True)
    assert (mine / "photo.jpg").read_bytes() == b"sea"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["holiday", "tiny.anoco"]


def test_strangers_are_listed(enrolled: Path) -> None:
    (enrolled / "notes.txt").write_text("mine")
    (enrolled / PRODUCT / "references/notes.txt").write_text("mine too")
    assert [p.name for p in Bundle.open(enrolled).strangers()] == ["notes.txt", "notes.txt"]


def test_a_lost_first_generation_is_named(tiny_bundle: Bundle) -> None:
    product = (
        Teacher.open(tiny_bundle.path)
        .enroll([NewPicture.from_array("a", textured_picture(1))])
        .product
    )
    folder = tiny_bundle.product_folder(product.name)
    document = (folder / "product.json").read_bytes()
    (folder / "product.json").unlink()
    with pytest.raises(BundleError, match=r"product\.json is missing"):
        list(Bundle.open(tiny_bundle.path).verify())
    # A kill right after the first commit leaves a whole bundle, and undo can still go back to it.
    (folder / "product.json").write_bytes(document)
    (folder / "history" / "product-1.json").unlink()
    list(Bundle.open(tiny_bundle.path).verify())
    Teacher.open(tiny_bundle.path).enroll([NewPicture.from_array("b", textured_picture(2))])
    assert [g.generation for g in tiny_bundle.generations(product.name)] == [1, 2]


def test_a_parity_report_may_hold_tuples(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "first.anoco")
    files = {record.path: bundle.read(record) for record in bundle.manifest.files}
    report = {"checks": ({"runtime": "a", "shape": (1, 2)},), "precision": None}
    again = create_bundle(
        tmp_path / "again.anoco",
        backbone=bundle.manifest.backbone,
        contract=bundle.manifest.input,
        parity=report,
        tools={},
        files=files,
    )
    assert again.manifest.parity == {
        "checks": [{"runtime": "a", "shape": [1, 2]}],
        "precision": None,
    }
