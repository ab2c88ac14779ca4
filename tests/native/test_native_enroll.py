"""`anoco_enroll` writes what Python would have written.

Both may teach one bundle in turns.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundle_edits import edit_document
from native_controller import (
    Enrolled,
    Open,
    Pixels,
    assert_same,
    controller,
    frames,
    new_pictures,
    python,
)
from other_process import snapshot
from PIL import Image
from tiny_bundle import make_tiny_bundle

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.checksum import seal
from anoco_edge.bundle.generations import prune, undo
from anoco_edge.detector import Detector
from anoco_edge.errors import (
    AnocoError,
    BundleError,
    PictureError,
    UsageError,
)
from anoco_edge.images.decode import read_picture
from anoco_edge.native import interface
from anoco_edge.native.library import check
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching import NewPicture, Settings, TileSettings

pytestmark = pytest.mark.usefixtures("use_native")

__all__ = ["controller"]  # the fixture is shared, and pytest finds it by this name

# ---- the same as Python

VARIATIONS: dict[str, Settings] = {
    "as it comes": Settings({}),
    "float32": Settings({"bank_dtype": "float32"}),
    "top5 and l2": Settings({"pooling": "top5", "metric": "l2", "lambda": 0.5}),
    "relative": Settings({"lambda": 0.3, "lambda_kind": "relative"}),
    "smooth": Settings({"pooling": "smooth"}, region=[(30, 0), (96, 80)]),
    "cosine": Settings({"metric": "cosine", "floor": 0.0, "min_area": 9.0}),
    "region": Settings({}, region=[(30, 0), (96, 80)]),
    "tiles": Settings({}, tiles=TileSettings(grid=(2, 2))),
    "tiles by size": Settings({"pooling": "top5"}, tiles=TileSettings(size=(50, 50), overlap=12)),
}


@pytest.mark.parametrize("settings", VARIATIONS.values(), ids=VARIATIONS)
def test_c_teaches_what_python_teaches(
    tiny_bundle: Bundle, tmp_path: Path, controller: Open, settings: Settings
) -> None:
    """Python makes the product with its settings; then C teaches one copy and Python the other."""
    ours = tiny_bundle.path
    python(ours).enroll(new_pictures(frames(1), ["first.png"]), "part", settings)
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs.anoco"))
    c, other = controller(ours), python(theirs)
    for added in ((2,), (3, 4, 5)):
        found = c.enroll(frames(*added))
        taught = other.enroll(new_pictures(frames(*added)), "part")
        product = assert_same(ours, theirs)
        assert product.threshold.kind == "provisional"
        assert found.added == len(added) and found.duplicates == 0
        assert found.references == len(product.references) == len(taught.product.references)
        assert found.patches == len(Bundle.open(ours).bank(product))
        assert found.generation == product.generation
        assert found.threshold == product.threshold.value
    assert [r.name for r in product.references] == [
        "first.png",
        "frame-1.png",
        "frame-1-2.png",
        "frame-2.png",
        "frame-3.png",
    ]


def test_a_new_product_takes_the_pooling_of_the_bundle(
    tiny_bundle: Bundle, tmp_path: Path, controller: Open
) -> None:
    ours = tiny_bundle.path
    manifest = ours / "manifest.json"
    edit_document(manifest, lambda d: d["backbone"].update(image_pooling="smooth"))
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs.anoco"))
    controller(ours).enroll(frames(1, 2))
    python(theirs).enroll(new_pictures(frames(1, 2)), "part")
    assert assert_same(ours, theirs).pooling == "smooth"


def test_a_mask_and_letterboxed_pictures(tmp_path: Path, controller: Open) -> None:
    ours = make_tiny_bundle(tmp_path / "ours.anoco", size=(128, 64)).path
    mask = np.zeros((80, 96), np.uint8)
    mask[:, 60:] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    settings = Settings({}, mask=(tmp_path / "mask.png").read_bytes())
    python(ours).enroll(new_pictures(frames(1, 2), ["a", "b"]), "part", settings)
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs.anoco"))
    pictures = [*frames(3), *frames(4, size=(98, 80))]
    found = controller(ours).enroll(pictures)
    python(theirs).enroll(new_pictures(pictures), "part")
    assert_same(ours, theirs)
    assert found.patches < 4 * 8 * 4, "the mask leaves patches out"


@pytest.mark.parametrize("size", [(96, 80), (331, 250), (1000, 700), (64, 64)])
def test_a_single_reference_is_compared_with_gentle_views_of_itself(
    tiny_bundle: Bundle, tmp_path: Path, controller: Open, size: tuple[int, int]
) -> None:
    ours = tiny_bundle.path
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs.anoco"))
    picture = frames(int(sum(size)), size=size)
    found = controller(ours).enroll(picture)
    python(theirs).enroll(new_pictures(picture), "part")
    product = assert_same(ours, theirs)
    assert product.threshold.evidence.method == "gentle augmentations of the only reference"
    assert len(product.threshold.evidence.scores) == 8
    assert (found.added, found.references, found.generation) == (1, 1, 1)


def test_of_many_references_32_are_held_out(
    tiny_bundle: Bundle, tmp_path: Path, controller: Open
) -> None:
    ours = tiny_bundle.path
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs.anoco"))
    pictures = frames(*range(41), size=(64, 64))
    controller(ours).enroll(pictures)
    python(theirs).enroll(new_pictures(pictures), "part")
    assert len(assert_same(ours, theirs).threshold.evidence.scores) == 32


def test_pictures_without_a_difference_set_no_threshold(
    tiny_bundle: Bundle, tmp_path: Path, controller: Open
) -> None:
    ours = tiny_bundle.path
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs.anoco"))
    dark, light = np.full((64, 64, 3), 90, np.uint8), np.full((64, 64, 3), 100, np.uint8)
    assert controller(ours).enroll([dark, light]).threshold == 0
    python(theirs).enroll(new_pictures([dark, light]), "part")
    product = assert_same(ours, theirs)
    assert product.threshold.kind == "none" and len(product.threshold.evidence.scores) == 2


def test_a_threshold_set_by_hand_stays(tiny_bundle: Bundle, controller: Open) -> None:
    path = tiny_bundle.path
    python(path).enroll(new_pictures(frames(1)), "part", Settings({}, threshold=0.25))
    before = Bundle.open(path).product("part").threshold
    assert controller(path).enroll(frames(2, 3)).threshold == 0.25
    assert Bundle.open(path).product("part").threshold == before
    assert before.kind == "manual"


def test_the_document_is_what_python_would_have_written(
    tiny_bundle: Bundle, tmp_path: Path, controller: Open
) -> None:
    ours = tiny_bundle.path
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs.anoco"))
    controller(ours).enroll(frames(1, 2), ["größe.png", 'a "b"\\c\n.png'])
    python(theirs).enroll(new_pictures(frames(1, 2), ["größe.png", 'a "b"\\c\n.png']), "part")
    assert_same(ours, theirs)
    raw, expected = ((path / "products/part/product.json").read_bytes() for path in (ours, theirs))
    document = json.loads(raw)
    assert raw == seal(document), "the very bytes"
    python_fields = [name for name in json.loads(expected) if name != "picture_limits"]
    assert list(document) == python_fields, "the same fields in the same order"
    assert raw == (ours / "products/part/history/product-1.json").read_bytes()
    changed = document["changed"], json.loads(expected)["changed"]
    assert all(len(text) == 25 and text.endswith("+00:00") for text in changed)
    assert changed[0][:10] in (changed[1][:10], time.strftime("%Y-%m-%d", time.gmtime()))


# ---- in turns


def test_the_limits_of_picture_quality_are_kept(tiny_bundle: Bundle, controller: Open) -> None:
    limits = python(tiny_bundle.path).enroll(new_pictures(frames(1, 2), ["a", "b"]), "part").product
    controller(tiny_bundle.path).enroll(frames(3))
    taught = Bundle.open(tiny_bundle.path).product("part")
    assert len(taught.references) == 3 and limits.picture_limits is not None
    assert taught.picture_limits == limits.picture_limits


def test_python_and_c_teach_one_product_in_turns(
    tiny_bundle: Bundle, tmp_path: Path, controller: Open
) -> None:
    ours = tiny_bundle.path
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs.anoco"))
    c, teacher, other = controller(ours), python(ours), python(theirs)
    for round_, seed in enumerate(range(10, 22, 2)):
        names = [f"frame-{seed}", f"frame-{seed + 1}"]
        new = new_pictures(frames(seed, seed + 1), names)
        if round_ % 2:
            teacher.enroll(new, "part")
        else:
            c.enroll(frames(seed, seed + 1), names)
        other.enroll(new, "part")
        if round_ == 2:
            teacher.remove([names[0]], "part")
            other.remove([names[0]], "part")
    product = assert_same(ours, theirs)
    assert [g.generation for g in Bundle.open(ours).generations("part")] == list(range(1, 8))
    assert (product.generation, product.parent, product.change) == (7, 6, "enroll 2")


def test_python_undoes_prunes_and_goes_on_after_c(tiny_bundle: Bundle, controller: Open) -> None:
    path = tiny_bundle.path
    c = controller(path)
    c.enroll(frames(1, 2), ["a.png", "b.png"])
    c.enroll(frames(3), ["c.png"])
    bundle = Bundle.open(path)
    assert undo(bundle, "part").generation == 1
    # As in Python, the number of an undone generation is not used again.
    assert c.enroll(frames(4), ["d.png"]).generation == 3
    product = bundle.product("part")
    assert (product.parent, [r.name for r in product.references]) == (
        1,
        ["a.png", "b.png", "d.png"],
    )
    assert prune(bundle, "part")
    list(bundle.verify())
    assert bundle.strangers() == []
    assert c.enroll(frames(5)).generation == 4
    assert Detector.open(path, "part", "openvino").inspect(frames(5)[0]).score < 1e-9


def test_a_product_whose_references_were_all_removed_is_taught_again(
    tiny_bundle: Bundle, controller: Open
) -> None:
    path = tiny_bundle.path
    c = controller(path)
    c.enroll(frames(1, 2), ["a.png", "b.png"])
    python(path).configure(Settings({"pooling": "top5"}), "part")
    python(path).remove(["a.png", "b.png"], "part")
    found = c.enroll(frames(3), ["c.png"])
    product = Bundle.open(path).product("part")
    assert (found.references, found.generation, product.pooling) == (1, 4, "top5")
    list(Bundle.open(path).verify())


# ---- names and products


def test_the_product_is_the_only_one_or_default(tiny_bundle: Bundle, controller: Open) -> None:
    path = tiny_bundle.path
    c = controller(path)
    c.enroll(frames(1), product=None)
    assert Bundle.open(path).products() == ["default"]
    c.enroll(frames(2), product=None)
    assert len(Bundle.open(path).product("default").references) == 2
    c.enroll(frames(3), product="nut-2_a.b")
    with pytest.raises(UsageError, match=r"several products: default, nut-2_a\.b; say which"):
        c.enroll(frames(4), product=None)
    assert c.status(frames(5), None, "default", None) == 0, "what is not wanted is not given"
    assert Bundle.open(path).product("default").generation == 3


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a b", "a\nb", "ä", b"\xff"])
def test_a_name_that_is_none_is_refused_before_anything_is_made(
    tiny_bundle: Bundle, controller: Open, name: str | bytes
) -> None:
    with pytest.raises(UsageError, match="is not a product name; use letters, digits"):
        controller(tiny_bundle.path).enroll(frames(1), product=name)
    assert not (tiny_bundle.path / "products").exists()


def test_a_product_that_python_named_in_another_alphabet_is_taught(
    tiny_bundle: Bundle, controller: Open
) -> None:
    python(tiny_bundle.path).enroll(new_pictures(frames(1)), "Nuß")
    assert controller(tiny_bundle.path).enroll(frames(2), product="Nuß").references == 2
    list(tiny_bundle.verify())


def test_known_pictures_are_counted_and_nothing_new_is_an_error(
    tiny_bundle: Bundle, controller: Open
) -> None:
    path = tiny_bundle.path
    c = controller(path)
    found = c.enroll([*frames(1, 2), *frames(1)], ["a.png", "b.png", "c.png"])
    assert (found.added, found.duplicates, found.references) == (2, 1, 2)
    found = c.enroll(frames(2, 3), ["b.png", "b.png"])
    assert (found.added, found.duplicates, found.references) == (1, 1, 3)
    references = Bundle.open(path).product("part").references
    assert [r.name for r in references] == ["a.png", "b.png", "b-2.png"]
    assert [r.pixels for r in references] == [sha256_bytes(p.tobytes()) for p in frames(1, 2, 3)]
    before = snapshot(path)
    known = r"nothing new: x \(same as a.png\), y \(same as b-2.png\); every picture is known"
    with pytest.raises(PictureError, match=known):
        c.enroll(frames(1, 3), ["x", "y"])
    assert snapshot(path) == before


def test_grey_and_cut_out_pictures_are_kept_as_rgb(tiny_bundle: Bundle, controller: Open) -> None:
    path = tiny_bundle.path
    grey = frames(1)[0][:, :, 0].copy()
    large = frames(2, size=(200, 160))[0]
    controller(path).enroll([grey, large[10:90, 20:116]], ["grey", "cut"])
    product = Bundle.open(path).product("part")
    kept = [read_picture(path / "products/part" / r.file.path) for r in product.references]
    np.testing.assert_array_equal(kept[0], np.repeat(grey[:, :, None], 3, axis=2))
    np.testing.assert_array_equal(kept[1], large[10:90, 20:116])
    # Python can read them.
    with pytest.raises(PictureError, match=r"nothing new: again \(same as cut\)"):
        python(path).enroll([NewPicture.from_array("again", kept[1])], "part")


def _hard_to_compress() -> dict[str, Pixels]:
    rng = np.random.default_rng(5)
    # The steps from pixel to pixel need a Huffman tree deeper than deflate allows, because each
    # step is rarer by 1.75 than the one before. Rows begin with different colours, so that they
    # differ.
    counts = [int(1.75**k) for k in range(19)]
    common_last = np.repeat(np.arange(19, 0, -1), counts)[: sum(counts) // 48 * 48]
    steps = common_last.reshape(3, 16, -1).transpose(1, 2, 0)  # never three equal pixels in a row
    steps = np.stack([np.roll(row, y, axis=1) for y, row in enumerate(steps)])
    speckled = np.zeros((300, 400, 3), np.uint8)
    speckled.reshape(-1)[rng.integers(0, speckled.size, 900)] = rng.integers(1, 255, 900)
    return {
        "noise": rng.integers(0, 256, (90, 70, 3), np.uint8),
        "flat": np.zeros((1100, 1000, 3), np.uint8),
        "deep tree": np.cumsum(steps, axis=1).astype(np.uint8, order="C"),
        "runs of every length": speckled,
        "smooth": np.add.outer(np.arange(500) / 7, np.arange(400) / 3)[..., None]
        .repeat(3, 2)
        .astype(np.uint8),
    }


def test_pictures_of_any_kind_come_back_from_their_files(
    tiny_bundle: Bundle, controller: Open
) -> None:
    path = tiny_bundle.path
    python(path).enroll(new_pictures(frames(1), ["first"]), "part", Settings({"any_size": True}))
    pictures = _hard_to_compress()
    controller(path).enroll(list(pictures.values()), list(pictures))
    references = {r.name: r for r in Bundle.open(path).product("part").references}
    for name, pixels in pictures.items():
        kept = read_picture(path / "products/part" / references[name].file.path)
        np.testing.assert_array_equal(kept, pixels, err_msg=name)
    assert references["flat"].file.size < 10_000
    assert references["smooth"].file.size < pictures["smooth"].size / 10
    assert references["noise"].file.size < pictures["noise"].size * 1.05


# ---- what is refused


def test_what_only_python_can_do_is_refused(
    tiny_bundle: Bundle, tmp_path: Path, controller: Open
) -> None:
    teacher = python(tiny_bundle.path)
    for name, settings in {
        "views": Settings({"tta": "references"}),
        "turned": Settings({"tta": "rotations"}),
        "mirrored": Settings({"flips": True}),
        "thinned": Settings({}, max_patches=12),
        "calibrated": Settings({}),
        "lost": Settings({}),
    }.items():
        teacher.enroll(new_pictures(frames(1, 2)), name, settings)
    teacher.calibrate([], "calibrated", accept_fewer=True)
    calibration_parts = new_pictures(frames(*range(20, 24)))
    teacher.calibrate(calibration_parts, "lost", accept_fewer=True, keep=False)
    teacher.enroll(new_pictures(frames(3), ["third"]), "lost")
    before = snapshot(tiny_bundle.path)
    c = controller(tiny_bundle.path)
    for name, why in {
        "views": "has views",
        "turned": "has views",
        "mirrored": "has views",
        "thinned": "was thinned",
        "calibrated": "is calibrated",
        "lost": "lost its calibration",
    }.items():
        status = c.status(frames(9), None, name, None)
        with pytest.raises(UsageError, match=why) as caught:
            check(c.library, status)
        assert status == interface.UNSUPPORTED
        assert "only Python can teach it; run: anoco-edge enroll" in str(caught.value)
    assert snapshot(tiny_bundle.path) == before


def test_bad_calls_say_what_is_wrong_and_change_nothing(
    tiny_bundle: Bundle, controller: Open
) -> None:
    path = tiny_bundle.path
    c = controller(path)
    c.enroll(frames(1, 2))
    before = snapshot(path)
    tall = frames(3, size=(80, 96))
    cases: list[tuple[type[AnocoError], str, Callable[[], Any]]] = [
        (UsageError, "count is 0: give at least one picture", lambda: c.enroll([])),
        (PictureError, "tall is 80x96, the references are 96x80", lambda: c.enroll(tall, ["tall"])),
        (PictureError, "b is 80x96", lambda: c.enroll([*frames(3), *tall], ["a", "b"], "new")),
        (UsageError, "empty name", lambda: c.enroll(frames(3), [""])),
        (UsageError, "is not UTF-8", lambda: c.enroll(frames(3), [b"\xff\xfe"])),
        (PictureError, "4x4", lambda: c.enroll([np.zeros((4, 4, 3), np.uint8)])),
    ]
    for error, text, call in cases:
        with pytest.raises(error, match=text):
            call()
    assert snapshot(path) == before
    out = Enrolled(added=-7)
    assert c.status(tall, None, "part", out) == interface.BAD_PICTURE
    assert out.added == -7, "not touched on failure"
    images = (c_void_p * 1)(None)
    enroll = c.library.anoco_enroll
    assert enroll(c._detector, images, c_int64(1), None, None) == interface.INVALID_ARGUMENT
    assert enroll(None, images, c_int64(1), None, None) == interface.INVALID_ARGUMENT


def test_a_damaged_product_is_not_taught(tiny_bundle: Bundle, controller: Open) -> None:
    path = tiny_bundle.path
    c = controller(path)
    c.enroll(frames(1, 2))
    bank = path / "products/part/bank-1.safetensors"
    whole = bank.read_bytes()
    bank.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    before = snapshot(path)
    with pytest.raises(BundleError, match=r"bank-1\.safetensors"):
        c.enroll(frames(3))
    assert snapshot(path) == before
    bank.write_bytes(whole)
    assert c.enroll(frames(3)).references == 3
