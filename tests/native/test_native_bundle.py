"""The native library reads everything that Python writes, and refuses everything Python refuses.

`read_bundle` (runtime/tests) prints everything that the library finds in a bundle or in one file.
"""

from __future__ import annotations

import ctypes
import io
import json
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from bundle_edits import PRODUCT, edit_document, files_with_content, rewrite_bank, write_and_record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_golden import CURRENT, contents, hashed
from native_build import ctest
from PIL import Image
from safetensors.numpy import save
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.augmentation_choice import ChoiceMethod
from anoco_edge.bundle.checksum import seal
from anoco_edge.bundle.documents import sealed_document
from anoco_edge.bundle.masks import decode_mask
from anoco_edge.bundle.schema import Backbone, Product
from anoco_edge.errors import BundleError
from anoco_edge.teaching import NewPicture, Settings, Teacher

BANK = PRODUCT / "bank-2.safetensors"
BAD_BUNDLE, NO_PRODUCT = 7, 8
quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

Read = Callable[[str, Path], bytes]


class Refused(Exception):
    """The message and the status with which the library refused a bundle."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@pytest.fixture(scope="module")
def read(native_build: Path) -> Read:
    """Return `read(what, path)`, which gives read_bundle's output or raises what it refuses."""

    def run(what: str, path: Path) -> bytes:
        command = [native_build / "tests/read_bundle", what, path]
        done = subprocess.run(command, capture_output=True)
        if done.returncode:
            raise Refused(done.returncode, done.stderr.decode())
        return done.stdout

    return run


def refusal(read: Read, path: Path, names: str | Path) -> str:
    """Return the one line with which a damaged bundle is refused; it names the file."""
    with pytest.raises(Refused) as caught:
        read("bundle", path)
    text = str(caught.value)
    assert caught.value.status == BAD_BUNDLE, text
    assert str(names) in text and "\n" not in text
    return text


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a product of two generations with region, mask and baseline; tests only copy it."""
    folder = tmp_path_factory.mktemp("master")
    path = make_tiny_bundle(folder / "tiny.anoco").path
    pictures = [NewPicture.from_file(p) for p in write_good_pictures(folder / "good", 8)]
    mask = np.zeros((80, 96), np.uint8)
    mask[:20, :24] = 255
    teacher = Teacher.open(path)
    plan = Settings({}, region=[(0, 0), (72, 80)], mask=png(Image.fromarray(mask)))
    teacher.enroll(pictures[:3], "part", plan)
    teacher.calibrate(pictures[3:], "part", false_reject=0.4, sigmas=1.0)
    return path


@pytest.fixture
def enrolled(master: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(master, tmp_path / "tiny.anoco"))


def png(picture: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", **options)
    return buffer.getvalue()


def test_the_readers_one_by_one(native_build: Path) -> None:
    ctest(native_build, "-R", "^test_bundle$")


def test_nothing_that_once_broke_a_reader_does_so_again(native_build: Path) -> None:
    ctest(native_build, "-R", "^fuzz_corpus$")


# ---- what Python writes


@pytest.mark.parametrize("name", ["plain", "everything", "views"])
def test_golden_bundles_say_what_they_always_said(read: Read, name: str) -> None:
    expected = json.loads((CURRENT / f"{name}.json").read_text())
    path = CURRENT / f"{name}_anoco"
    assert contents(path) == expected
    assert json.loads(read("bundle", path)) == expected


def test_golden_bundles_are_whole() -> None:
    bundles = sorted(CURRENT.glob("*_anoco"))
    assert len(bundles) == 3
    for path in bundles:
        assert list(Bundle.open(path).verify())


def test_everything_in_a_bundle_is_read(read: Read, master: Path) -> None:
    assert json.loads(read("bundle", master)) == contents(master)


def test_a_bundle_without_products_is_read(read: Read, tmp_path: Path) -> None:
    path = make_tiny_bundle(tmp_path / "new.anoco").path
    assert json.loads(read("bundle", path)) == contents(path)


finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=1e-300, max_value=1e300)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
views = st.tuples(positive, st.just(0.0), finite, st.just(0.0), st.just(1e3), finite).filter(
    lambda v: v[0] > 1e-3
)
LIMITS = {"min_brightness": 60, "max_saturated": 0.1, "min_sharpness": 0.001, "pictures": 4}
picture_limits = st.fixed_dictionaries(
    {
        "min_brightness": st.floats(0, 255),
        "max_saturated": st.floats(0, 1),
        "min_sharpness": st.floats(0, 1e9),
        "pictures": st.integers(1, 99),
    },
    optional={"min_likeness": st.none() | st.floats(-1, 1)},
)
choices = st.fixed_dictionaries(
    {},
    optional={
        "method": st.sampled_from(get_args(ChoiceMethod)),
        "ratio": st.none() | positive,
        "limit": st.none() | positive,
        "words": words,
    },
).flatmap(
    lambda fields: st.lists(st.tuples(positive, positive), max_size=3).map(
        lambda pairs: {**fields, "plain": [p for p, _ in pairs], "turned": [t for _, t in pairs]}
    )
)


@quick
@given(
    name=st.text("aé_-.9", min_size=1, max_size=6).filter(lambda n: n[0] != "."),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "lambda": positive,
            "lambda_kind": st.sampled_from(["absolute", "relative"]),
            "floor": st.floats(0, 1, exclude_max=True),
            "metric": st.sampled_from(["product", "l2", "cosine"]),
            "pooling": st.sampled_from(["max", "top5", "smooth"]),
            "tta": st.sampled_from(["none", "references", "paper"]),
            "tta_seed": st.integers(0, 2**63 - 1),
            "views": st.lists(views, max_size=3),
            "any_size": st.booleans(),
            "min_area": st.floats(0, 1e6),
            "region": st.builds(
                lambda points: {"points": points},
                st.lists(st.tuples(finite, finite), min_size=3, max_size=5),
            ),
            "threshold": st.builds(
                lambda value, why: {"kind": "manual", "value": value, "evidence": {why: [why]}},
                positive,
                words | st.just("lost"),
            ),
            "bank_dtype": st.sampled_from(["float16", "float32"]),
            "dropped_patches": st.integers(0, 99),
            "cpu_precision": st.sampled_from(["bf16", None]),
            "picture_limits": st.none() | picture_limits,
            "coreset": st.just({"max_patches": 3, "seed": 1}),
            "tuning": st.builds(
                lambda seed, said, hashes: {"seed": seed, "words": said, "pictures": hashes},
                st.integers(0, 2**63 - 1),
                words,
                st.lists(st.text("0123456789abcdef", min_size=64, max_size=64), min_size=1),
            ),
            "changed": words,
            "generation": st.integers(1, 2**40),
        },
    ),
    rotations=st.none() | st.integers(2, 64),
    turned=st.fixed_dictionaries(
        {},
        optional={
            "flips": st.booleans(),
            "merged_patches": st.integers(0, 99),
            "merge_distance": st.floats(0, 1, exclude_max=True),
            "augmentation_choice": choices,
        },
    ),
)
def test_every_product_that_python_writes_is_read_alike(
    read: Read,
    enrolled: Path,
    name: str,
    fields: dict[str, Any],
    rotations: int | None,
    turned: dict[str, Any],
) -> None:
    given_fields = {"generation": 1, "changed": "", "change": "", "name": name, **fields}
    if rotations:
        given_fields |= {"tta": "rotations", "rotations": rotations}
    if given_fields.get("tta", "none") in ("none", "rotations"):
        given_fields |= turned
    product = Product.model_validate(given_fields)
    shutil.rmtree(enrolled / "products")
    folder = enrolled / "products" / name
    folder.mkdir(parents=True)
    (folder / "product.json").write_bytes(sealed_document(product))
    assert json.loads(read("bundle", enrolled)) == contents(enrolled)
    # Without the defaults written out, it means the same.
    (folder / "product.json").write_bytes(seal(given_fields))
    assert json.loads(read("bundle", enrolled)) == contents(enrolled)


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | finite | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@quick
@given(document=st.dictionaries(words, documents, max_size=5))
def test_json_is_written_byte_for_byte_as_python_does(
    read: Read, tmp_path: Path, document: dict[str, Any]
) -> None:
    path = tmp_path / "a.json"
    for ascii_only in (False, True):
        path.write_bytes(json.dumps(document, ensure_ascii=ascii_only).encode())
        expected = json.dumps(document, indent=1, ensure_ascii=False).encode()
        assert read("json", path) == expected
        assert read("seal", path) == seal(document)
    path.write_bytes(seal(document))
    assert read("sealed", path) == b"yes"


@quick
@given(
    shapes=st.dictionaries(
        st.text('ab"é\\', max_size=3),
        st.tuples(
            st.sampled_from([np.uint8, np.int16, np.float16, np.int32, np.float32, np.int64]),
            st.lists(st.integers(0, 3), min_size=1, max_size=3),
        ),
        max_size=5,
    )
)
def test_safetensors_are_written_byte_for_byte_as_python_does(
    read: Read, tmp_path: Path, shapes: dict[str, tuple[Any, list[int]]]
) -> None:
    path = tmp_path / "a.safetensors"
    tensors = {
        name: np.arange(np.prod(shape)).astype(dtype).reshape(shape)
        for name, (dtype, shape) in shapes.items()
    }
    path.write_bytes(save(tensors))
    assert read("safetensors", path) == path.read_bytes()


# ---- masks


MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]


@pytest.mark.parametrize("options", [{}, {"compress_level": 0}, {"optimize": True}])
@pytest.mark.parametrize("mode", MODES)
def test_masks_of_every_kind_are_read_as_python_reads_them(
    read: Read, tmp_path: Path, mode: str, options: dict[str, Any]
) -> None:
    picture = Image.fromarray(textured_picture(1, 61, 33))
    if mode == "I;16":
        values = np.asarray(picture.convert("L")).astype(np.uint16) * 257
        picture = Image.fromarray(values)
    check_mask(read, tmp_path, png(picture.convert(mode), **options))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_masks_with_a_palette_of_any_depth_are_read(read: Read, tmp_path: Path, bits: int) -> None:
    picture = Image.fromarray(textured_picture(1, 61, 33)).quantize(2**bits)
    check_mask(read, tmp_path, png(picture, bits=bits, transparency=0))


@quick
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.integers(16, 70),
    height=st.integers(16, 40),
    smooth=st.integers(1, 12),
    level=st.integers(0, 9),
)
def test_masks_of_any_content_are_read(
    read: Read, tmp_path: Path, seed: int, width: int, height: int, smooth: int, level: int
) -> None:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    blocks = np.repeat(np.repeat(noise, smooth, 0), smooth, 1)
    check_mask(read, tmp_path, png(Image.fromarray(blocks), compress_level=level))


def check_mask(read: Read, folder: Path, data: bytes) -> None:
    (folder / "mask.png").write_bytes(data)
    mask = decode_mask(data, "mask.png")
    height, width = mask.shape
    found = json.loads(read("mask", folder / "mask.png"))
    assert found == {"width": width, "height": height, "set": hashed(mask)}
    assert mask.any() and not mask.all()


def with_chunk(data: bytes, kind: bytes, content: bytes) -> bytes:
    """Insert another chunk right after the header, which is 13 bytes long."""
    body = kind + content
    chunk = struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))
    return data[:33] + chunk + data[33:]


def with_header(data: bytes, at: int, value: bytes) -> bytes:
    """Replace the header, with the right checksum."""
    header = bytearray(data[12:29])
    header[4 + at : 4 + at + len(value)] = value
    return data[:12] + bytes(header) + struct.pack(">I", zlib.crc32(header)) + data[33:]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: with_header(data, 12, b"\1"), "is interlaced"),
        (lambda data: with_header(data, 8, b"\3"), "unknown format"),
        (lambda data: with_header(data, 9, b"\1"), "unknown format"),
        (lambda data: with_header(data, 0, b"\0\0\0\0"), "0x33 pixels, too small"),
        (lambda data: with_header(data, 0, b"\0\0\0\x0f"), "15x33 pixels, too small"),
        (lambda data: with_header(data, 0, b"\0\0\x80\x01"), "is 32769x33 pixels: at most 32768"),
        (
            lambda data: with_header(data, 0, b"\0\0\x40\0\0\0\x40\0"),
            "is 16384x16384.*: at most 100 million are read",
        ),
        (lambda data: with_header(data, 0, b"\0\0\x20\0\0\0\x20\0"), "damaged or incomplete"),
        (
            lambda data: with_chunk(with_chunk(data, b"PLTE", b"\0" * 3), b"PLTE", b"\0" * 3),
            "palette",
        ),
        (lambda data: with_header(data, 3, b"\x3c"), "damaged or incomplete"),
        (lambda data: with_chunk(data, b"eXIf", b"II*\0"), "may have to be turned"),
        (lambda data: with_chunk(data, b"tEXt", b"Raw profile type exif\0x"), "be turned"),
        (lambda data: with_chunk(data, b"ABCD", b""), "unknown chunk 'ABCD'"),
        (lambda data: data[:40] + b"!" + data[41:], "a checksum differs"),
        (lambda data: data[:-12], "damaged or incomplete"),
        (lambda data: b"GIF89a" + data, "is not a PNG file"),
        (lambda data: b"", "is not a PNG file"),
    ],
)
def test_a_mask_that_cannot_be_read_says_what_to_do(
    read: Read, tmp_path: Path, change: Callable[[bytes], bytes], says: str
) -> None:
    picture = Image.fromarray(textured_picture(1, 61, 33)).convert("L")
    (tmp_path / "mask.png").write_bytes(change(png(picture)))
    hint = "set the mask of the product again: anoco-edge product set"
    with pytest.raises(Refused, match=says) as caught:
        read("mask", tmp_path / "mask.png")
    assert hint in str(caught.value)
    with pytest.raises(BundleError, match=says) as ours:
        decode_mask((tmp_path / "mask.png").read_bytes(), "mask.png")
    assert ours.value.hint.replace("`", "") == hint
    check_mask(read, tmp_path, with_chunk(png(picture), b"tEXt", b"Title\0x"))


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# ---- damage


def test_any_changed_byte_is_found_and_the_file_named(read: Read, enrolled: Path) -> None:
    read("bundle", enrolled)
    used = [
        *(Path(name) for name in ("manifest.json", "backbone.onnx", "selftest.safetensors")),
        *(PRODUCT / name for name in ("product.json", "bank-1.safetensors")),
        *(p.relative_to(enrolled) for p in (enrolled / PRODUCT).glob("mask-*.png")),
        *(p.relative_to(enrolled) for p in (enrolled / PRODUCT).glob("baseline-*")),
    ]
    assert len(used) == 7

    @quick
    @given(st.sampled_from(used), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
    def flip(name: Path, where: float, bits: int) -> None:
        right = (enrolled / name).read_bytes()
        wrong = bytearray(right)
        wrong[int(where * len(right))] ^= bits
        (enrolled / name).write_bytes(wrong)
        try:
            refusal(read, enrolled, enrolled / name)
        finally:
            (enrolled / name).write_bytes(right)

    flip()
    read("bundle", enrolled)


def test_files_cut_short_or_missing_are_found(read: Read, enrolled: Path) -> None:
    for name in files_with_content(enrolled):
        unused = (name.parent.name in ("history", "calibration"), name.name == "product.json")
        if any(unused):
            continue  # a folder without product.json is not a product, see below
        right = (enrolled / name).read_bytes()
        for kept in (0, len(right) // 2, len(right) - 1):
            (enrolled / name).write_bytes(right[:kept])
            refusal(read, enrolled, enrolled / name)
        (enrolled / name).unlink()
        text = refusal(read, enrolled, name.name)
        assert "is missing" in text or "has no manifest.json" in text
        (enrolled / name).write_bytes(right)
    document = enrolled / PRODUCT / "product.json"
    document.write_bytes(document.read_bytes()[:-1])
    refusal(read, enrolled, document)
    document.unlink()
    assert json.loads(read("bundle", enrolled))["products"] == {}


def test_where_there_is_no_bundle(read: Read, tmp_path: Path) -> None:
    assert "there is no bundle at" in refusal(read, tmp_path / "none.anoco", "none.anoco")
    assert "has no manifest.json" in refusal(read, tmp_path, tmp_path)


@pytest.mark.parametrize(
    "outside", ["../x", "LICENSES/../../x", "/etc/hostname", "a\\..\\x", "", "a\0b"]
)
def test_a_path_that_leaves_the_bundle_is_refused(read: Read, enrolled: Path, outside: str) -> None:
    (enrolled.parent / "x").write_bytes(b"")
    edit_document(enrolled / PRODUCT / "product.json", lambda d: d["bank"].update(path=outside))
    text = refusal(read, enrolled, "product.json is invalid at bank.path")
    assert "points outside the bundle" in text
    edit_document(enrolled / "manifest.json", lambda d: d["files"][0].update(path=outside))
    text = refusal(read, enrolled, "manifest.json is invalid at files.0.path")
    assert "points outside the bundle" in text


@pytest.mark.parametrize(
    "name", ["backbone.onnx", "LICENSES", BANK.with_name("bank-1.safetensors")]
)
def test_a_link_to_the_outside_is_refused(read: Read, enrolled: Path, name: Path) -> None:
    elsewhere = enrolled.parent / "elsewhere"
    (enrolled / name).rename(elsewhere)
    (enrolled / name).symlink_to(elsewhere)
    assert "is a link; a bundle contains no links: copy" in refusal(read, enrolled, enrolled / name)
    (enrolled / name).unlink()
    (enrolled / name).symlink_to(Path(name).name)
    assert "is a link" in refusal(read, enrolled, enrolled / name)


def test_a_bundle_behind_a_link_is_fine(read: Read, enrolled: Path) -> None:
    link = enrolled.parent / "link"
    link.symlink_to(enrolled)
    assert json.loads(read("bundle", link)) == contents(link)


DOCUMENTS = ["manifest.json", "products/part/product.json"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_newer_schema_says_update(read: Read, enrolled: Path, name: str) -> None:
    edit_document(enrolled / name, lambda d: d.update(schema_version=2, invented="later"))
    text = refusal(read, enrolled, enrolled / name)
    assert text.endswith("has schema version 2, this program knows 1; update anoco-edge")


@pytest.mark.parametrize("precision", get_args(Backbone.model_fields["precision"].annotation))
def test_every_precision_is_read(read: Read, enrolled: Path, precision: str) -> None:
    file = enrolled / "manifest.json"
    edit_document(file, lambda d: d["backbone"].update(precision=precision))
    assert json.loads(read("bundle", enrolled)) == contents(enrolled)
    edit_document(file, lambda d: d["backbone"].update(precision=f"{precision}x"))
    refusal(read, enrolled, "manifest.json is invalid at backbone.precision")


def paths_in(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """List the path to every value in a document, the document itself included."""
    inside: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(p for key, member in inside for p in paths_in(member, (*path, key)))]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_python_does_not_accept_anywhere_in_a_document_is_refused(
    read: Read, enrolled: Path, name: str
) -> None:
    """Whatever value stands in whatever place, the library refuses it exactly where Python does."""
    file = enrolled / name
    right = file.read_bytes()
    free = ("evidence", "parity", "history")  # these may hold anything
    places = [p for p in paths_in(json.loads(right))[1:] if not set(p) & set(free)]
    odd = st.sampled_from(
        [None, True, -1, 0, 2**40, 0.5, -0.5, 1e300, "", "x", "../x", [], {}, [1]]
    )

    @settings(quick, max_examples=80)
    @given(st.sampled_from(places), odd | st.just("delete") | st.just("add"))
    def change(place: tuple[str | int, ...], value: Any) -> None:
        document = json.loads(right)
        owner = document
        for part in place[:-1]:
            owner = owner[part]
        if value == "delete":
            del owner[place[-1]]
        elif value == "add" and isinstance(owner, dict):
            owner["invented"] = 1
        else:
            owner[place[-1]] = value
        file.write_bytes(seal(document))
        try:
            expected = contents(enrolled)
        except BundleError:
            refusal(read, enrolled, enrolled)
            return
        assert json.loads(read("bundle", enrolled)) == expected

    change()


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"views": [[1, 2, 0, 2, 4, 0]]}, "views.0"),
        ({"views": [[1, 0, 0, 1, 0]]}, "views.0"),
        ({"lambda": 0}, "lambda"),
        ({"floor": 1.0}, "floor"),
        ({"generation": 0}, "generation"),
        ({"region": {"points": [[0, 0], [1, 1]]}}, "region.points"),
        ({"threshold": {"kind": "none", "value": 1.0}}, "threshold"),
        ({"threshold": {"kind": "manual"}}, "threshold"),
        ({"threshold": {"kind": "manual", "value": 0}}, "threshold.value"),
        ({"calibration": {"false_reject": 1, "source": "references"}}, "calibration.false_reject"),
        ({"coreset": {"max_patches": 0, "seed": 1}}, "coreset.max_patches"),
        ({"tiles": {"width": 64, "height": 64, "columns": [], "rows": [0]}}, "tiles.columns"),
        ({"name": ".part"}, "name"),
        ({"tta": "rotations", "rotations": 65}, "rotations"),
        ({"tta": "rotations"}, "the top"),
        ({"rotations": 8}, "the top"),
        ({"tuning": {"seed": -1, "words": "", "pictures": ["0" * 64]}}, "tuning.seed"),
        ({"tuning": {"seed": 0, "pictures": ["0" * 64]}}, "tuning.words"),
        ({"tuning": {"seed": 0, "words": "", "pictures": []}}, "tuning.pictures"),
        ({"tuning": {"seed": 0, "words": "", "pictures": ["A" * 64]}}, "tuning.pictures.0"),
        ({"cpu_precision": "fp32"}, "cpu_precision"),
        ({"tta": "paper", "flips": True}, "the top"),
        ({"tta": "references", "augmentation_choice": {}}, "the top"),
        ({"flips": 1}, "flips"),
        ({"merged_patches": -1}, "merged_patches"),
        ({"merge_distance": -0.1}, "merge_distance"),
        ({"merge_distance": 1.0}, "merge_distance"),
        ({"picture_limits": {**LIMITS, "min_brightness": 256}}, "picture_limits.min_brightness"),
        ({"picture_limits": {**LIMITS, "max_saturated": 1.1}}, "picture_limits.max_saturated"),
        ({"picture_limits": {**LIMITS, "min_sharpness": -1}}, "picture_limits.min_sharpness"),
        ({"picture_limits": {**LIMITS, "min_likeness": -1.1}}, "picture_limits.min_likeness"),
        ({"picture_limits": {**LIMITS, "pictures": 0}}, "picture_limits.pictures"),
        ({"picture_limits": {**LIMITS, "darkness": 0}}, "picture_limits.darkness"),
        ({"picture_limits": {}}, "picture_limits.min_brightness"),
        ({"augmentation_choice": {"method": "a guess"}}, "augmentation_choice.method"),
        ({"augmentation_choice": {"plain": [1.0]}}, "augmentation_choice"),
        (
            {"augmentation_choice": {"plain": [-1.0]}},
            "augmentation_choice.plain.0",
        ),
        ({"augmentation_choice": {"limit": -1.0}}, "augmentation_choice.limit"),
        ({"augmentation_choice": {"scores": []}}, "augmentation_choice.scores"),
    ],
)
def test_a_value_out_of_its_range_is_refused_with_its_place(
    read: Read, enrolled: Path, fields: dict[str, Any], where: str
) -> None:
    edit_document(enrolled / PRODUCT / "product.json", lambda d: d.update(fields))
    refusal(read, enrolled, f"product.json is invalid at {where}: ")
    with pytest.raises(BundleError, match=f"is invalid at {where}"):
        Bundle.open(enrolled).product()


@pytest.mark.parametrize("content", [b"[]", b"null", b"\xff\xfe\x00", b"{", b"3", b"", b"{}"])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_no_document_is_refused(
    read: Read, enrolled: Path, name: str, content: bytes
) -> None:
    (enrolled / name).write_bytes(content)
    refusal(read, enrolled, enrolled / name)


def test_a_document_without_a_right_checksum_is_refused(read: Read, enrolled: Path) -> None:
    path = enrolled / PRODUCT / "product.json"
    document = json.loads(path.read_bytes())
    document["threshold"]["value"] *= 2
    path.write_text(json.dumps(document, indent=1) + "\n")
    assert "product.json is not what was written" in refusal(read, enrolled, path)


def test_a_product_in_the_folder_of_another_is_refused(read: Read, enrolled: Path) -> None:
    (enrolled / PRODUCT).rename(enrolled / "products/other")
    assert "belongs to product 'part'" in refusal(read, enrolled, "products/other/product.json")


# ---- tensors that must not score, though every hash is right

Tensors = dict[str, np.ndarray]


def put(name: str, where: Any, value: float) -> Callable[[Tensors], None]:
    return lambda tensors: tensors[name].__setitem__(where, value)


def cut(tensors: Tensors, end: int = 0) -> None:
    tensors.update({name: values[:end] for name, values in tensors.items()})


@pytest.fixture
def second_generation(enrolled: Path) -> Path:
    """Return a function that changes the bank of generation 2."""
    folder = enrolled / PRODUCT
    (folder / "bank-1.safetensors").rename(folder / BANK.name)
    edit_document(folder / "product.json", lambda d: d["bank"].update(path=BANK.name))
    return enrolled


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("features", (3, 1), np.nan), "reference patch 3 contains NaN or infinity"),
        (put("features", (0, 0), -np.inf), "reference patch 0 contains NaN or infinity"),
        (put("features", 2, -0.0), "contains patches of zero norm"),
        (
            lambda t: t.update(features=t["features"][:, :5]),
            "holds 5 features per patch, the backbone",
        ),
        (lambda t: t.update(features=t["features"][0]), "holds 'col', 'features'"),
        (cut, "no reference patch"),
        (lambda t: t.update(features=t["features"].astype(np.int32)), "are I32 of shape"),
        (lambda t: t.pop("norms"), "expected 'col', 'features', 'norms'"),
        (lambda t: t.update(more=t["norms"]), "expected 'col', 'features', 'norms'"),
        (lambda t: t.update(row=t["row"][:-1]), "provenance columns"),
        (lambda t: t.update(view=t["view"].astype(np.int32)), "provenance columns"),
        (put("reference", -1, 3), "names references that do not exist"),
        (put("reference", 0, -1), "names references that do not exist"),
        (put("view", 0, 1), "names views that do not exist"),
        (put("row", 0, 4), "names rows that do not exist"),
        (put("col", 0, -1), "names columns that do not exist"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_bank_that_could_give_a_wrong_score_is_refused(
    read: Read,
    second_generation: Path,
    change: Callable[[Tensors], Any],
    says: str,
    dtype: Any,
) -> None:
    def convert(tensors: Tensors) -> None:
        tensors["features"] = tensors["features"].astype(dtype)

    rewrite_bank(second_generation, convert)
    assert json.loads(read("bundle", second_generation)) == contents(second_generation)
    rewrite_bank(second_generation, change)
    assert says in refusal(read, second_generation, second_generation / BANK)
    with pytest.raises(BundleError, match=BANK.name):
        Bundle.open(second_generation).bank(Bundle.open(second_generation).product())


def test_what_is_no_bank_is_refused(read: Read, second_generation: Path) -> None:
    new = write_and_record(second_generation / BANK, b"\x80\x04pickle?")
    edit_document(second_generation / PRODUCT / "product.json", lambda d: d.update(bank=new))
    assert "is not a reference bank" in refusal(read, second_generation, BANK)


grid = np.ones((4, 4), np.float32)


@pytest.mark.parametrize(
    "tensors",
    [
        {"mean": grid},
        {"mean": grid, "spread": grid, "more": grid},
        {"mean": grid, "spread": grid[:3]},
        {"mean": grid, "spread": grid.astype(np.float16)},
        {"mean": -grid, "spread": grid},
        {"mean": grid, "spread": grid * np.float32(np.nan)},
        {"mean": grid * np.float32(np.inf), "spread": grid},
        {"mean": grid * np.float32(3e38), "spread": grid * np.float32(3e38)},
    ],
)
def test_a_baseline_that_could_hide_a_defect_is_refused(
    read: Read, enrolled: Path, tensors: Tensors
) -> None:
    folder = enrolled / PRODUCT
    path = next(folder.glob("baseline-*"))
    for values, good in (({"mean": grid, "spread": grid}, True), (tensors, False)):
        new = write_and_record(path, save({k: np.ascontiguousarray(v) for k, v in values.items()}))
        edit_document(folder / "product.json", lambda d, new=new: d["baseline"].update(file=new))
        if good:
            assert json.loads(read("bundle", enrolled)) == contents(enrolled)
    assert "does not fit the product; calibrate again" in refusal(read, enrolled, path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("features", 3, 0.0), "are zero, NaN or infinite"),
        (put("features", (3, 1), np.nan), "are zero, NaN or infinite"),
        (put("energies", 0, np.nan), "are zero, NaN or infinite"),
        (put("energies", slice(None), 0.0), "are zero, NaN or infinite"),
        (lambda t: t.pop("pixels"), "holds no pixels of type U8 and shape 1 x 64 x 64 x 3"),
        (lambda t: t.update(energies=t["energies"][1:]), "holds no energies"),
        (lambda t: t.update(features=t["features"].astype(np.float16)), "holds no features"),
    ],
)
def test_a_selftest_that_would_always_pass_is_refused(
    read: Read, enrolled: Path, change: Callable[[Tensors], Any], says: str
) -> None:
    from safetensors.numpy import load

    path = enrolled / "selftest.safetensors"
    tensors = load(path.read_bytes())
    change(tensors)
    new = write_and_record(path, save({k: np.ascontiguousarray(v) for k, v in tensors.items()}))

    def put_record(document: dict[str, Any]) -> None:
        document["files"] = [new if f["path"] == path.name else f for f in document["files"]]

    edit_document(enrolled / "manifest.json", put_record)
    assert says in refusal(read, enrolled, path)


def test_tiles_that_leave_a_gap_are_refused(read: Read, enrolled: Path) -> None:
    tiles = {"width": 160, "height": 64, "columns": [0, 96], "rows": [0]}
    edit_document(enrolled / PRODUCT / "product.json", lambda d: d.update(tiles=tiles))
    with pytest.raises(Refused, match="tiles at 0, 96 do not cover 160 pixels"):
        read("bundle", enrolled)


# ---- through the C interface


class BundleInfo(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("random_weights", ctypes.c_uint32),
        ("backbone", ctypes.c_char_p),
        *((name, ctypes.c_int64) for name in ("width", "height", "rows", "cols", "dim")),
    )


@pytest.fixture(scope="module")
def library(native_library: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(native_library))
    library.anoco_last_error.restype = ctypes.c_char_p
    library.anoco_bundle_product.restype = ctypes.c_char_p
    library.anoco_bundle_product_count.restype = ctypes.c_int64
    library.anoco_bundle_product.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    for name in ("destroy", "product_count"):
        getattr(library, f"anoco_bundle_{name}").argtypes = (ctypes.c_void_p,)
    library.anoco_bundle_describe.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    return library


def test_a_bundle_is_opened_listed_and_described(library: ctypes.CDLL) -> None:
    bundle = ctypes.c_void_p()
    path = str(CURRENT / "everything_anoco").encode()
    assert library.anoco_bundle_open(path, ctypes.byref(bundle)) == 0
    assert library.anoco_bundle_product_count(bundle) == 2
    names = [library.anoco_bundle_product(bundle, k) for k in (-1, 0, 1, 2)]
    assert names == [None, "größe".encode(), b"other", None]
    info = BundleInfo(struct_size=ctypes.sizeof(BundleInfo))
    assert library.anoco_bundle_describe(bundle, ctypes.byref(info)) == 0
    assert (info.backbone, info.random_weights) == (b"tiny", 0)
    assert (info.width, info.height, info.rows, info.cols, info.dim) == (32, 32, 2, 2, 4)
    # A program compiled against an older header gets only the fields that it knows.
    short = BundleInfo(struct_size=BundleInfo.width.offset, height=7)
    assert library.anoco_bundle_describe(bundle, ctypes.byref(short)) == 0
    assert (short.backbone, short.height) == (b"tiny", 7)
    library.anoco_bundle_destroy(bundle)
    library.anoco_bundle_destroy(None)


def test_on_failure_the_outputs_are_as_they_were(library: ctypes.CDLL, tmp_path: Path) -> None:
    bundle = ctypes.c_void_p(7)
    assert library.anoco_bundle_open(str(tmp_path).encode(), ctypes.byref(bundle)) == BAD_BUNDLE
    assert b"has no manifest.json" in library.anoco_last_error() and bundle.value == 7
    assert library.anoco_bundle_open(None, ctypes.byref(bundle)) == 1
    assert library.anoco_last_error() == b"path is null" and bundle.value == 7
    assert library.anoco_bundle_open(b"x", None) == 1
    assert library.anoco_bundle_product_count(None) == 0
    assert library.anoco_bundle_product(None, 0) is None
    info = BundleInfo(struct_size=3, width=5)
    assert library.anoco_bundle_describe(None, ctypes.byref(info)) == 1 and info.width == 5
