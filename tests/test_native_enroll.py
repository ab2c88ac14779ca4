"""Teaching from C: what `anoco_enroll` writes is what Python would have written, and both may teach
one bundle in turns."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load, load_file
from test_storage_faults import powerless, snapshot
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.checksum import seal, sha256_bytes
from anoco_edge.bundle.generations import prune, undo
from anoco_edge.detector import Detector
from anoco_edge.errors import (
    AnocoError,
    BundleError,
    PictureError,
    ScoringError,
    UsageError,
)
from anoco_edge.native import interface
from anoco_edge.native.library import check, load_library
from anoco_edge.native.road import find_openvino
from anoco_edge.pictures import read_picture
from anoco_edge.teaching import NewPicture, Settings, Teacher, TileSettings

pytestmark = [pytest.mark.xdist_group("native"), pytest.mark.usefixtures("use_native")]

__all__ = ["powerless"]  # a fixture that is shared

Pixels = NDArray[np.uint8]
ROOT = Path(__file__).parents[1]


# ---- a controller: what a C program does, in ctypes


class EnrollOptions(interface.Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("product", c_char_p),
        ("names", ctypes.POINTER(c_char_p)),
    )


class Enrolled(interface.Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("added", c_int64),
        ("duplicates", c_int64),
        ("references", c_int64),
        ("patches", c_int64),
        ("generation", c_int64),
        ("threshold", c_double),
    )


class Controller:
    """A native detector of a bundle, to be taught."""

    def __init__(self, path: Path, backend: str = "openvino") -> None:
        self.library = load_library()
        engine = find_openvino() if backend == "openvino" else None
        if backend == "openvino" and engine is None:
            pytest.skip("OpenVINO is not installed")
        bundle, self._detector = c_void_p(), c_void_p()
        check(self.library, self.library.anoco_bundle_open(os.fsencode(path), bundle))
        options = interface.DetectorOptions(
            backend=backend.encode(), library=engine and os.fsencode(engine), threads=1
        )
        if products := Bundle.open(path).products():
            options.product = products[0].encode()
        try:
            status = self.library.anoco_detector_open(bundle, options, self._detector)
        finally:
            self.library.anoco_bundle_destroy(bundle)
        check(self.library, status)

    def close(self) -> None:
        self.library.anoco_detector_destroy(self._detector)

    def enroll(
        self,
        pictures: Sequence[Pixels],
        names: Sequence[str | bytes] | None = None,
        product: str | bytes | None = "part",
    ) -> Enrolled:
        """Through `anoco_enroll`; what it reports is raised."""
        found = Enrolled(added=-7, threshold=-7.0)
        check(self.library, self.status(pictures, names, product, found))
        return found

    def status(
        self,
        pictures: Sequence[Pixels],
        names: Sequence[str | bytes] | None,
        product: str | bytes | None,
        out: Enrolled | None,
    ) -> int:
        """The same, as C sees it."""
        images = [_image(p) for p in pictures]
        pointers = (ctypes.POINTER(interface.Image) * len(images))(
            *(ctypes.pointer(image) for image in images)
        )
        options = EnrollOptions(product=None if product is None else _bytes(product))
        if names is not None:
            options.names = (c_char_p * len(names))(*map(_bytes, names))
        call = self.library.anoco_enroll
        call.restype = c_int32
        given = None if out is None else ctypes.byref(out)
        done: int = call(
            self._detector, pointers, c_int64(len(images)), ctypes.byref(options), given
        )
        return done


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _image(pixels: Pixels) -> interface.Image:
    """RGB, or grey where there is one channel; rows may have gaps."""
    height, width = pixels.shape[:2]
    return interface.Image(
        format=interface.RGB if pixels.ndim == 3 else interface.GREY,
        data=pixels.ctypes.data,
        width=width,
        height=height,
        stride=pixels.strides[0],
    )


Open = Callable[..., Controller]


@pytest.fixture
def controller() -> Iterator[Open]:
    """`controller(path)` opens one; all are closed."""
    opened: list[Controller] = []

    def make(path: Path, backend: str = "openvino") -> Controller:
        opened.append(Controller(path, backend))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def python(path: Path) -> Teacher:
    return Teacher.open(path, "openvino", "native")


def frames(*seeds: int, size: tuple[int, int] = (96, 80)) -> list[Pixels]:
    return [textured_picture(seed, *size) for seed in seeds]


def names_of(count: int) -> list[str]:
    return [f"frame-{k + 1}.png" for k in range(count)]


def new_pictures(
    pictures: Sequence[Pixels], names: Sequence[str] | None = None
) -> list[NewPicture]:
    named = zip(names or names_of(len(pictures)), pictures, strict=True)
    return [NewPicture.from_array(name, rgb) for name, rgb in named]


def assert_same(ours: Path, theirs: Path, name: str = "part") -> Product:
    """Two bundles say the same of a product, but for how PNG files are compressed."""
    bundles = Bundle.open(ours), Bundle.open(theirs)
    for bundle in bundles:
        list(bundle.verify())
        assert bundle.strangers() == []
    one, other = (bundle.product(name) for bundle in bundles)
    assert _plain(one) == _plain(other)
    assert one.threshold.kind == other.threshold.kind
    assert (one.threshold.value or 0) == pytest.approx(other.threshold.value or 0, rel=1e-6)
    evidence, expected = one.threshold.evidence, other.threshold.evidence
    assert list(evidence) == list(expected)
    for key, value in expected.items():
        assert evidence[key] == (pytest.approx(value, rel=1e-6) if key == "scores" else value)
    tensors, wanted = (
        load_file(bundle.product_folder(name) / bundle.product(name).bank.path)  # type: ignore[union-attr]
        for bundle in bundles
    )
    assert list(tensors) == list(wanted)
    for key, tensor in wanted.items():
        assert tensors[key].dtype == tensor.dtype and tensors[key].shape == tensor.shape
        rounding = 1e-7 if key == "norms" else 0
        np.testing.assert_allclose(tensors[key], tensor, rtol=rounding, err_msg=key)
    for reference, same in zip(one.references, other.references, strict=True):
        files = [
            bundle.product_folder(name) / r.file.path
            for bundle, r in zip(bundles, (reference, same), strict=True)
        ]
        np.testing.assert_array_equal(read_picture(files[0]), read_picture(files[1]))
    query = textured_picture(77, one.references[0].width, one.references[0].height)
    scores = [Detector.open(path, name, "openvino").inspect(query).score for path in (ours, theirs)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)
    return one


def _plain(product: Product) -> dict[str, Any]:
    """Without times, hashes of files that are compressed otherwise, and what rounding touches."""
    fields = product.model_dump(exclude={"checksum", "changed", "threshold", "bank"})
    for reference in fields["references"]:
        reference["file"] = reference["file"]["path"].split("/")[0]
    return fields


# ---- the same as Python

VARIATIONS: dict[str, Settings] = {
    "as it comes": Settings({}),
    "float32": Settings({"bank_dtype": "float32"}),
    "top5 and l2": Settings({"pooling": "top5", "metric": "l2", "lambda": 0.5}),
    "cosine": Settings({"metric": "cosine", "floor": 0.0, "min_area": 9.0}),
    "region": Settings({}, region=[(30, 0), (96, 80)]),
    "tiles": Settings({}, tiles=TileSettings(grid=(2, 2))),
    "tiles by size": Settings({"pooling": "top5"}, tiles=TileSettings(size=(50, 50), overlap=12)),
}


@pytest.mark.parametrize("settings", VARIATIONS.values(), ids=VARIATIONS)
def test_c_teaches_what_python_teaches(
    tiny_bundle: Bundle, tmp_path: Path, controller: Open, settings: Settings
) -> None:
    """Python makes the product with its settings; then one bundle is taught by C, one by Python."""
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
    assert product.threshold.evidence["method"] == "gentle augmentations of the only reference"
    assert len(product.threshold.evidence["scores"]) == 8
    assert (found.added, found.references, found.generation) == (1, 1, 1)


def test_of_many_references_32_are_held_out(
    tiny_bundle: Bundle, tmp_path: Path, controller: Open
) -> None:
    ours = tiny_bundle.path
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs.anoco"))
    pictures = frames(*range(41), size=(64, 64))
    controller(ours).enroll(pictures)
    python(theirs).enroll(new_pictures(pictures), "part")
    assert len(assert_same(ours, theirs).threshold.evidence["scores"]) == 32


def test_pictures_without_a_difference_set_no_threshold(
    tiny_bundle: Bundle, tmp_path: Path, controller: Open
) -> None:
    ours = tiny_bundle.path
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs.anoco"))
    dark, light = np.full((64, 64, 3), 90, np.uint8), np.full((64, 64, 3), 100, np.uint8)
    assert controller(ours).enroll([dark, light]).threshold == 0
    python(theirs).enroll(new_pictures([dark, light]), "part")
    product = assert_same(ours, theirs)
    assert product.threshold.kind == "none" and len(product.threshold.evidence["scores"]) == 2


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
    assert list(document) == list(json.loads(expected)), "the same fields in the same order"
    assert raw == (ours / "products/part/history/product-1.json").read_bytes()
    changed = document["changed"], json.loads(expected)["changed"]
    assert all(len(text) == 25 and text.endswith("+00:00") for text in changed)
    assert changed[0][:10] in (changed[1][:10], time.strftime("%Y-%m-%d", time.gmtime()))


# ---- in turns


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
    # What was undone is not used as a number again, as in Python.
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
    # Python knows them again.
    with pytest.raises(PictureError, match=r"nothing new: again \(same as cut\)"):
        python(path).enroll([NewPicture.from_array("again", kept[1])], "part")


def _hard_to_compress() -> dict[str, Pixels]:
    rng = np.random.default_rng(5)
    # Steps from pixel to pixel whose Huffman tree is deeper than deflate allows: each is rarer by
    # 1.75 than the one before. Rows begin with another colour each, so that they are not alike.
    counts = [int(1.75**k) for k in range(19)]
    common_last = np.repeat(np.arange(19, 0, -1), counts)[: sum(counts) // 48 * 48]
    steps = common_last.reshape(3, 16, -1).transpose(1, 2, 0)  # never three alike in a row
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
        "thinned": Settings({}, max_patches=12),
        "calibrated": Settings({}),
        "lost": Settings({}),
    }.items():
        teacher.enroll(new_pictures(frames(1, 2)), name, settings)
    teacher.calibrate([], "calibrated", accept_fewer=True)
    held_out = new_pictures(frames(*range(20, 24)))
    teacher.calibrate(held_out, "lost", accept_fewer=True, keep=False)
    teacher.enroll(new_pictures(frames(3), ["third"]), "lost")
    before = snapshot(tiny_bundle.path)
    c = controller(tiny_bundle.path)
    for name, why in {
        "views": "has views",
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


# ---- features, number by number

_OPEN = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)
_CLOSE = ctypes.CFUNCTYPE(None, c_void_p)
_REQUEST = ctypes.CFUNCTYPE(c_int32, c_void_p, ctypes.POINTER(c_void_p), c_void_p, c_size_t)
_RUN = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, ctypes.POINTER(c_void_p), c_void_p, c_size_t)


class Backend(interface.Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("name", c_char_p),
        ("user", c_void_p),
        ("open", _OPEN),
        ("close", _CLOSE),
        ("create_request", _REQUEST),
        ("destroy_request", _CLOSE),
        ("run", _RUN),
    )


class Numbers:
    """A backend whose features are given by the test; it passes the self-test of tiny bundles."""

    def __init__(self, selftest: dict[str, NDArray[Any]]) -> None:
        self._pixels, self._known = selftest["pixels"], selftest["features"]
        self._answer = self._known
        self.next: list[NDArray[np.float32]] = []
        self.struct = Backend(
            name=b"numbers",
            open=_OPEN(self._made),
            close=_CLOSE(lambda _: None),
            create_request=_REQUEST(lambda _e, made, _t, _s: self._make(made)),
            destroy_request=_CLOSE(lambda _: None),
            run=_RUN(self._run),
        )

    def _made(self, _user: Any, _model: Any, engine: int, _text: Any, _size: int) -> int:
        return self._make(ctypes.cast(engine, ctypes.POINTER(c_void_p)))

    def _make(self, made: Any) -> int:
        made[0] = 1
        return 0

    def _run(self, _request: Any, pixels: int, features: Any, _text: Any, _size: int) -> int:
        given = np.frombuffer(ctypes.string_at(pixels, self._pixels.size), np.uint8)
        known = np.array_equal(given, self._pixels.reshape(-1))
        found = self._known if known else self.next.pop(0)
        self._answer = np.ascontiguousarray(found, np.float32)
        features[0] = self._answer.ctypes.data
        return 0


_NUMBERS: list[Numbers] = []  # a backend is registered once, for good


@pytest.fixture
def numbers(tiny_bundle: Bundle) -> Numbers:
    if not _NUMBERS:
        _NUMBERS.append(Numbers(load((tiny_bundle.path / "selftest.safetensors").read_bytes())))
        library = load_library()
        check(library, library.anoco_register_backend(ctypes.byref(_NUMBERS[0].struct)))
    _NUMBERS[0].next.clear()
    return _NUMBERS[0]


def _features(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(16, 8)).astype(np.float32)


def test_float16_banks_are_rounded_as_numpy_rounds(
    tiny_bundle: Bundle, controller: Open, numbers: Numbers
) -> None:
    """Normal numbers, those below 2^-14, ties both ways, and the largest that fit."""
    rng = np.random.default_rng(1)
    exponents = rng.integers(-26, 15, (2, 16, 8))
    grids = (rng.uniform(-2, 2, (2, 16, 8)) * 2.0**exponents).astype(np.float32)
    halves = np.arange(0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[1:] + halves[:-1]) / 2  # exact in float32
    grids[0].reshape(-1)[:60] = rng.choice(middles, 60)
    grids[0].reshape(-1)[60:64] = [65519.996, -65504, 2**-25, -(2**-24)]
    numbers.next = [*grids]
    controller(tiny_bundle.path, "numbers").enroll(frames(1, 2))
    bundle = Bundle.open(tiny_bundle.path)
    stored = bundle.bank(bundle.product("part")).references.features
    np.testing.assert_array_equal(stored, grids.astype(np.float16).reshape(-1, 8))


def test_patches_without_signal_are_dropped_and_counted(
    tiny_bundle: Bundle, controller: Open, numbers: Numbers
) -> None:
    first, second = _features(1), _features(2)
    first[[0, 5]] = 0
    second[7] = 1e-9  # nothing is left of it in float16
    numbers.next = [first, second]
    c = controller(tiny_bundle.path, "numbers")
    assert c.enroll(frames(1, 2)).patches == 29
    product = tiny_bundle.product("part")
    bank = tiny_bundle.bank(product)
    assert product.dropped_patches == 3
    assert bank.reference.tolist() == [0] * 14 + [1] * 15
    places = [(r, c) for r in range(4) for c in range(4)]
    expected = [places[k] for k in range(16) if k not in (0, 5)]
    expected += [places[k] for k in range(16) if k != 7]
    assert list(zip(bank.row.tolist(), bank.col.tolist(), strict=True)) == expected
    third = _features(3)
    third[1] = 0
    numbers.next = [third]
    assert c.enroll(frames(3)).patches == 44
    assert tiny_bundle.product("part").dropped_patches == 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.nan, r"bad\.png cannot be a reference: patch 3 contains NaN or infinity; take another"),
        (np.inf, r"bad\.png cannot be a reference: patch 3 contains NaN or infinity; take another"),
        (1e30, r"features of bad\.png do not fit into float16; .*--bank-dtype float32"),
        (-200000, r"features of bad\.png do not fit into float16; .*--bank-dtype float32"),
        (65520, r"features of bad\.png do not fit into float16; .*--bank-dtype float32"),
    ],
)
def test_features_that_cannot_be_compared_with_are_refused(
    tiny_bundle: Bundle, controller: Open, numbers: Numbers, value: float, text: str
) -> None:
    before = snapshot(tiny_bundle.path)
    c = controller(tiny_bundle.path, "numbers")
    bad = _features(2)
    bad[3, 2] = value
    numbers.next = [_features(1), bad]
    with pytest.raises(ScoringError, match=text):
        c.enroll(frames(1, 2), ["good.png", "bad.png"])
    numbers.next = [np.zeros((16, 8), np.float32)]
    with pytest.raises(ScoringError, match="a cannot be a reference: no patch of it has a signal"):
        c.enroll(frames(1), ["a"])
    assert snapshot(tiny_bundle.path) == before


# ---- faults: a full disk, a read-only place, a kill, two at once

_PRELUDE = """
import sys, time
from pathlib import Path
from tiny_bundle import textured_picture
from anoco_edge.errors import AnocoError
from anoco_edge.teaching import NewPicture
from test_native_enroll import Controller, frames, new_pictures, python

def main(path):
    BODY

try:
    main(Path(sys.argv[1]))
except AnocoError as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


def child(
    body: str,
    path: Path,
    *,
    before: Callable[[], None] | None = None,
    wrapper: tuple[str, ...] = (),
) -> subprocess.Popen[str]:
    """Run `body` (of a function of `path`) in another process."""
    program = _PRELUDE.replace("BODY", textwrap.indent(textwrap.dedent(body), "    ").strip())
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return subprocess.Popen(
        [*wrapper, sys.executable, "-c", program, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=before,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err, err
    return process.returncode, out, err


@pytest.fixture
def taught(tiny_bundle: Bundle, controller: Open) -> Path:
    """Generation 1 of `part`: two references."""
    controller(tiny_bundle.path).enroll(frames(1, 2), ["frame1", "frame2"])
    return tiny_bundle.path


def assert_whole(path: Path) -> list[str]:
    """The bundle verifies and inspects; returns the names of its references."""
    bundle = Bundle.open(path)
    list(bundle.verify())
    product = bundle.product("part")
    assert len(set(bundle.bank(product).reference.tolist())) == len(product.references)
    assert Detector.open(path, "part", "openvino").inspect(frames(1)[0]).score < 1e-9
    return [r.name for r in product.references]


def test_a_file_size_limit_changes_nothing(taught: Path) -> None:
    """It stands for a full disk: the write itself fails, at the first byte or within a file."""
    before = snapshot(taught)
    body = """
    import resource
    c = Controller(path)
    for limit in (0, 1000, 9000, 1 << 20):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            c.enroll(frames(7, 8))
        except AnocoError as error:
            print(f"{type(error).__name__}: {error}")
    """
    code, out, err = finish(child(body, taught))
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("StorageError: cannot write ") and "File too large" in line
        assert "nothing was changed" in line
    after = snapshot(taught)
    assert {name: after[name] for name in before if "product.json" not in name} == {
        name: data for name, data in before.items() if "product.json" not in name
    }
    assert Bundle.open(taught).product("part").generation == 2
    assert Bundle.open(taught).strangers() == []
    assert len(assert_whole(taught)) == 4


def test_a_read_only_bundle_is_not_taught(taught: Path, powerless: tuple[str, ...]) -> None:
    before = snapshot(taught)
    subprocess.run(["chmod", "-R", "a-w", str(taught)], check=True)
    try:
        for product in ("part", "new"):
            body = f"Controller(path).enroll(frames(7), product={product!r})"
            code, _, err = finish(child(body, taught, wrapper=powerless))
            assert code == 1 and err.count("\n") == 1, err
            assert err.startswith("StorageError: cannot write ") and "no permission" in err
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(taught)], check=True)
    assert snapshot(taught) == before


def test_kill_at_random_moments_leaves_the_old_or_the_new_state(taught: Path) -> None:
    """(That no step of a commit is left out is for runtime/tests/test_commit.cpp to show.)"""
    body = """
    c = Controller(path)
    for seed in range({first}, {first} + 1000, 2):
        start = time.perf_counter()
        print("go", flush=True)
        c.enroll(frames(seed, seed + 1), ["frame%d" % seed, "frame%d" % (seed + 1)])
        print(time.perf_counter() - start, flush=True)
    """
    rng = np.random.default_rng(3)
    for k, moment in enumerate(rng.permutation(np.linspace(0.05, 1.1, 10))):
        process = child(body.format(first=10_000 * (k + 1)), taught)
        assert process.stdout is not None and process.stdout.readline() == "go\n"
        duration = float(process.stdout.readline())
        before = Bundle.open(taught).product("part").references
        assert process.stdout.readline() == "go\n"
        time.sleep(moment * duration)
        process.kill()
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        after = assert_whole(taught)
        # Two come together: never one of them alone, and none of the others is lost.
        assert after[: len(before)] == [r.name for r in before]
        assert (len(after) - len(before)) % 2 == 0
    Controller(taught).enroll(frames(5))
    assert Bundle.open(taught).product("part").references[-1].name == "frame-1.png"
    assert not list(taught.rglob(".tmp-*")), "the next change sweeps what was left"


def test_c_and_python_teach_at_once_and_nothing_is_lost(taught: Path) -> None:
    native = """
    c = Controller(path)
    for seed in range(100, 106):
        c.enroll(frames(seed), ["frame%d" % seed])
    """
    other = """
    teacher = python(path)
    for seed in range(200, 206):
        teacher.enroll(new_pictures(frames(seed), ["frame%d" % seed]), "part")
    """
    for process in [child(body, taught) for body in (native, other)]:
        code, _, err = finish(process)
        assert code == 0, err
    expected = {f"frame{s}" for s in (1, 2, *range(100, 106), *range(200, 206))}
    assert set(assert_whole(taught)) == expected
    bundle = Bundle.open(taught)
    assert [g.generation for g in bundle.generations("part")] == list(range(1, 14))
    assert bundle.strangers() == []
