"""Each picture module of the native library agrees with the Python code that it mirrors.

Bytes are compared bit by bit, with Pillow as the oracle of every resize and warp. The modules are
called through runtime/tests/parts.cpp; ANOCO_EDGE_PARTS names a built one.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anoco_edge.bundle.schema import Affine, Region
from anoco_edge.images.contract import Fit, InputContract
from anoco_edge.images.preprocess import Mask, Pixels, patch_box, place, prepare
from anoco_edge.pipeline.anomaly_map import Map, MapMaker, enlarge
from anoco_edge.pipeline.augmentation import (
    IDENTITY,
    average,
    box_in_source,
    draw_view,
    paired_views,
    visible_patches,
    warp,
)
from anoco_edge.pipeline.patch_mask import inspected_patches, inspected_pixels
from anoco_edge.pipeline.regions import find_regions
from anoco_edge.scoring.pooling import smooth_grid

RGB, BGR, RGBA, BGRA, GREY, NV12 = range(1, 7)
BT601, BT709 = range(2)
LIMITED, FULL = range(2)
INVALID_ARGUMENT, CORRUPT, INTERNAL, BAD_PICTURE = 1, 5, 6, 9
some = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Image(ctypes.Structure):
    """The C struct anoco_image."""

    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("format", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("width", ctypes.c_int64),
        ("height", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("chroma", ctypes.c_void_p),
        ("chroma_stride", ctypes.c_int64),
        ("where", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("matrix", ctypes.c_uint32),
        ("range", ctypes.c_uint32),
    )


class Input(ctypes.Structure):
    """The C struct anoco_input."""

    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("fit", ctypes.c_uint32),
        ("width", ctypes.c_int64),
        ("height", ctypes.c_int64),
        ("fill", ctypes.c_uint8 * 4),
        ("stride", ctypes.c_uint32),
    )


class Placed(ctypes.Structure):
    """The C struct anoco_placement."""

    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("left", ctypes.c_int64),
        ("top", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("height", ctypes.c_int64),
    )


class Contract(ctypes.Structure):
    """The C struct PartsContract of parts.cpp."""

    _fields_ = (
        ("width", ctypes.c_int64),
        ("height", ctypes.c_int64),
        ("letterbox", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("fill", ctypes.c_uint8 * 4),
    )


@dataclass(frozen=True)
class Parts:
    """Calls parts.cpp, and passes arrays and structs by their address."""

    library: ctypes.CDLL

    def __call__(self, name: str, *arguments: Any) -> int:
        return int(self.library[name](*map(_as_c, arguments)))

    def done(self, name: str, *arguments: Any) -> None:
        """Call a function, which must succeed."""
        status = self(name, *arguments)
        assert status == 0, self.error

    @property
    def error(self) -> str:
        self.library.anoco_last_error.restype = ctypes.c_char_p
        return cast(bytes, self.library.anoco_last_error()).decode()

    def refuses(self, status: int, words: str, name: str, *arguments: Any) -> None:
        assert self(name, *arguments) == status
        assert words in self.error


def _as_c(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        return ctypes.c_void_p(value.ctypes.data)
    if isinstance(value, ctypes.Structure):
        return ctypes.byref(value)
    if isinstance(value, float):
        return ctypes.c_double(value)
    return ctypes.c_int64(value) if isinstance(value, int) else value


@pytest.fixture(scope="module")
def parts(request: pytest.FixtureRequest) -> Parts:
    named = os.environ.get("ANOCO_EDGE_PARTS")
    built = named or next(request.getfixturevalue("native_build").rglob("libanoco_parts.so"))
    return Parts(ctypes.CDLL(str(Path(built))))


# What is compared.


def contract(
    cols: int, rows: int, stride: int = 1, fit: Fit = "stretch", fill: int = 0
) -> InputContract:
    return InputContract(
        width=cols * stride,
        height=rows * stride,
        fit=fit,
        fill=(fill, 255 - fill, 7),
        stride=stride,
        rows=rows,
        cols=cols,
        dim=1,
    )


def as_parts(c: InputContract) -> Contract:
    fill = (ctypes.c_uint8 * 4)(*c.fill, 0)
    return Contract(c.width, c.height, c.fit == "letterbox", c.stride, fill)


def as_input(c: InputContract) -> Input:
    fill = (ctypes.c_uint8 * 4)(*c.fill, 0)
    size = ctypes.sizeof(Input)
    return Input(size, c.fit == "letterbox", c.width, c.height, fill, c.stride)


def as_image(pixels: Pixels, layout: int = RGB, **changes: Any) -> Image:
    """Describe an array as an anoco_image, with the array's own strides.

    Rows may have gaps. For NV12, the array holds the luma and then the chroma.
    """
    height, width = pixels.shape[:2]
    if layout == NV12:
        height = height * 2 // 3
    image = Image(
        ctypes.sizeof(Image), layout, pixels.ctypes.data, width, height, pixels.strides[0], None, 0
    )
    image.memory = pixels  # the image only points at it
    for name, value in changes.items():
        setattr(image, name, value)
    return image


def noise(seed: int, *shape: int) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def energies(seed: int, rows: int, cols: int) -> Map:
    """Draw energies that are mostly low, some high and some equal."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 12, (rows, cols)) ** 2 / 10).astype(np.float32)


sides = st.one_of(st.integers(1, 40), st.integers(1, 400))
picture_sides = st.integers(16, 120)  # pictures smaller than 16 pixels are refused
grids = st.builds(
    contract,
    cols=st.integers(1, 8),
    rows=st.integers(1, 8),
    stride=st.sampled_from([1, 2, 3, 7, 8, 16]),
    fit=st.sampled_from(["stretch", "letterbox"]),
    fill=st.integers(0, 255),
)
seeds = st.integers(0, 2**32 - 1)


# Placement of a picture.


@some
@given(grids, sides, sides, st.lists(st.floats(-50, 500), min_size=4, max_size=4))
def test_a_picture_is_placed_where_python_places_it(
    parts: Parts, c: InputContract, width: int, height: int, box: list[float]
) -> None:
    placed, expected = np.empty(6, np.int64), place(c, width, height)
    parts("parts_place", as_parts(c), width, height, placed)
    assert tuple(placed) == tuple(vars(expected).values())

    there, scale = np.empty(4), np.empty(1)
    parts("parts_to_picture", as_parts(c), width, height, np.array(box), there, scale)
    assert tuple(there) == expected.to_picture((box[0], box[1], box[2], box[3]))
    assert scale[0] == expected.area_scale


@pytest.mark.parametrize("height", [1, 3, 5, 7, 9])
def test_half_a_pixel_is_rounded_to_the_even_number(parts: Parts, height: int) -> None:
    c, placed = contract(64, 64, fit="letterbox"), np.empty(6, np.int64)
    parts("parts_place", as_parts(c), 128, height, placed)
    assert placed[5] == max(1, round(height / 2)) == place(c, 128, height).height


def test_a_patch_in_input_pixels(parts: Parts) -> None:
    c, box = contract(4, 5, 16), np.empty(4)
    parts("parts_patch_box", as_parts(c), 1, 2, box)
    assert tuple(box) == patch_box(c, 1, 2)


# Preprocessing.


def prepared(parts: Parts, image: Image, c: InputContract) -> Pixels:
    out = np.empty((c.height, c.width, 3), np.uint8)
    parts.done("anoco_preprocess", image, as_input(c), out, None)
    return out


@some
@given(grids, picture_sides, picture_sides, seeds)
def test_a_picture_is_prepared_as_pillow_does_it(
    parts: Parts, c: InputContract, width: int, height: int, seed: int
) -> None:
    rgb = noise(seed, height, width, 3)
    np.testing.assert_array_equal(prepared(parts, as_image(rgb), c), prepare(rgb, c)[0])


@pytest.mark.parametrize(
    ("picture", "size"),
    [
        ((16, 16), (1, 1)),
        ((16, 16), (48, 32)),
        ((48, 32), (1, 1)),
        ((640, 480), (32, 24)),  # to a twentieth
        ((31, 32), (32, 32)),  # resized horizontally only
        ((32, 31), (32, 32)),  # resized vertically only
        ((32, 32), (32, 32)),
        ((50, 100), (40, 80)),  # the last size that is resized horizontally first ...
        ((50, 101), (40, 80)),  # ... and the first that is resized vertically first
        ((16, 2000), (32, 32)),
        ((3000, 17), (16, 16)),
        ((20000, 16), (1, 1)),
    ],
)
@pytest.mark.parametrize("fit", ["stretch", "letterbox"])
@pytest.mark.parametrize("layout", [RGB, BGRA, GREY])
def test_sizes_that_are_special(
    parts: Parts, picture: tuple[int, int], size: tuple[int, int], fit: Fit, layout: int
) -> None:
    c = contract(*size, fit=fit, fill=200)
    pixels, rgb = in_layout(noise(1, picture[1], picture[0], 3), layout)
    np.testing.assert_array_equal(prepared(parts, as_image(pixels, layout), c), prepare(rgb, c)[0])


def test_white_stays_white(parts: Parts) -> None:
    """From 32768 to 16, rounded weights add up to more than one, because each is rounded up."""
    white = np.full((16, 32768, 3), 255, np.uint8)
    for width in range(1, 40):
        c = contract(width, 1)
        np.testing.assert_array_equal(prepared(parts, as_image(white), c), prepare(white, c)[0])


def in_layout(rgb: Pixels, layout: int) -> tuple[Pixels, Pixels]:
    """Return the picture in another layout, and the RGB values that it stands for."""
    if layout == GREY:
        grey = np.ascontiguousarray(rgb[..., 0])
        return grey, np.repeat(grey[..., None], 3, axis=2)
    pixels = rgb[..., ::-1] if layout in (BGR, BGRA) else rgb
    if layout in (RGBA, BGRA):
        pixels = np.concatenate([pixels, noise(0, *rgb.shape[:2], 1)], axis=2)
    return np.ascontiguousarray(pixels), rgb


def with_gaps(pixels: Pixels, gap: int) -> Pixels:
    """Return the same picture with `gap` other bytes at the end of each row."""
    height, row = pixels.shape[0], pixels[0].nbytes
    memory = noise(7, height, row + gap)
    memory[:, :row] = pixels.reshape(height, row)
    strides = (row + gap, *pixels.strides[1:])
    return np.lib.stride_tricks.as_strided(memory, pixels.shape, strides)


@some
@given(
    st.sampled_from([RGB, BGR, RGBA, BGRA, GREY]),
    picture_sides,
    picture_sides,
    st.integers(0, 9),
    grids,
    seeds,
)
def test_every_layout_gives_the_same_pixels(
    parts: Parts, layout: int, width: int, height: int, gap: int, c: InputContract, seed: int
) -> None:
    pixels, rgb = in_layout(noise(seed, height, width, 3), layout)
    image = as_image(with_gaps(pixels, gap), layout)
    out = np.empty_like(rgb)
    parts.done("parts_to_rgb", image, out)
    np.testing.assert_array_equal(out, rgb)
    np.testing.assert_array_equal(prepared(parts, image, c), prepare(rgb, c)[0])


@some
@given(st.integers(8, 30), st.integers(8, 60), st.integers(0, 5), grids, seeds)
def test_nv12_gives_the_pixels_of_opencv(
    parts: Parts, half_width: int, half_height: int, gap: int, c: InputContract, seed: int
) -> None:
    cv2 = pytest.importorskip("cv2")
    width, height = 2 * half_width, 2 * half_height
    yuv = noise(seed, height * 3 // 2, width)
    rgb = cv2.cvtColor(yuv, cv2.COLOR_YUV2RGB_NV12)
    luma, chroma = with_gaps(yuv[:height], gap), with_gaps(yuv[height:], gap + 2)
    apart = as_image(
        luma, NV12, height=height, chroma=chroma.ctypes.data, chroma_stride=chroma.strides[0]
    )
    for image in (as_image(with_gaps(yuv, gap), NV12), apart):
        out = np.empty_like(rgb)
        parts.done("parts_to_rgb", image, out)
        np.testing.assert_array_equal(out, rgb)
        np.testing.assert_array_equal(prepared(parts, image, c), prepare(rgb, c)[0])


def test_every_nv12_colour(parts: Parts) -> None:
    cv2 = pytest.importorskip("cv2")
    luma = np.repeat(np.arange(256, dtype=np.uint8), 256 * 2).reshape(512, 256).repeat(2, axis=1)
    for v in (0, 1, 15, 16, 127, 128, 129, 240, 255):
        pairs = np.stack([np.arange(256, dtype=np.uint8), np.full(256, v, np.uint8)], axis=1)
        yuv = np.concatenate([luma, np.tile(pairs.reshape(1, 512), (256, 1))])
        out = np.empty((512, 512, 3), np.uint8)
        parts.done("parts_to_rgb", as_image(yuv, NV12), out)
        np.testing.assert_array_equal(out, cv2.cvtColor(yuv, cv2.COLOR_YUV2RGB_NV12))


@pytest.mark.parametrize("matrix", [BT601, BT709])
@pytest.mark.parametrize("full", [LIMITED, FULL])
def test_nv12_follows_the_formula(parts: Parts, matrix: int, full: int) -> None:
    """Every luma with many chromas, against the definition of the standard in float64."""
    kr, kb = ((0.299, 0.114), (0.2126, 0.0722))[matrix]
    luma = np.repeat(np.arange(256, dtype=np.uint8), 256 * 2).reshape(512, 256).repeat(2, axis=1)
    u = np.arange(256, dtype=np.float64).repeat(2)[None]
    y = luma.astype(np.float64) / 255 if full else np.maximum(luma.astype(float) - 16, 0) / 219
    blue_u = (u - 128) / (255 if full else 224) * 2 * (1 - kb)
    for v in (0, 1, 15, 16, 100, 127, 128, 129, 200, 240, 255):
        red_v = (v - 128) / (255 if full else 224) * 2 * (1 - kr)
        green = y - (kr * red_v + kb * blue_u) / (1 - kr - kb)
        exact = 255 * np.stack([y + red_v + 0 * u, green, y + blue_u], axis=2)
        pairs = np.stack([np.arange(256, dtype=np.uint8), np.full(256, v, np.uint8)], axis=1)
        yuv = np.concatenate([luma, np.tile(pairs.reshape(1, 512), (256, 1))])
        out = np.empty((512, 512, 3), np.uint8)
        image = as_image(yuv, NV12)
        image.matrix, image.range = matrix, full
        parts.done("parts_to_rgb", image, out)
        # OpenCV's numbers for BT.601 in limited range have three digits.
        limit = 0.75 if (matrix, full) == (BT601, LIMITED) else 0.501
        assert np.abs(out - exact.clip(0, 255)).max() <= limit


@some
@given(grids, st.lists(st.tuples(picture_sides, picture_sides), min_size=1, max_size=5), seeds)
def test_one_preparer_takes_pictures_of_every_size_up_to_its_own(
    parts: Parts, c: InputContract, sizes: list[tuple[int, int]], seed: int
) -> None:
    """The largest comes first, last, or twice; no picture affects the result of the next."""
    room = max(w for w, _ in sizes), max(h for _, h in sizes)
    sizes = [*sizes, (room[0] + 1, 16), room, (16, room[1] + 1)]
    sizes += [(16, 16), (16, room[1]), (room[0], 16)]
    pictures = [noise(seed + k, h, w, 3) for k, (w, h) in enumerate(sizes)]
    images = [as_image(picture) for picture in pictures]
    results = [np.zeros((c.height, c.width, 3), np.uint8) for _ in sizes]
    fits = np.empty(len(sizes), np.uint8)
    parts.done(
        "parts_prepare",
        as_parts(c),
        *room,
        (ctypes.c_void_p * len(sizes))(*map(ctypes.addressof, images)),
        len(sizes),
        (ctypes.c_void_p * len(sizes))(*(r.ctypes.data for r in results)),
        fits,
    )
    for (w, h), picture, result, fit in zip(sizes, pictures, results, fits, strict=True):
        assert fit == (w <= room[0] and h <= room[1])
        np.testing.assert_array_equal(result, prepare(picture, c)[0] if fit else 0)


def test_the_placement_comes_with_the_pixels(parts: Parts) -> None:
    c, rgb = contract(64, 48, fit="letterbox"), noise(0, 20, 80, 3)
    out, placed = np.empty((48, 64, 3), np.uint8), Placed(ctypes.sizeof(Placed))
    parts.done("anoco_preprocess", as_image(rgb), as_input(c), out, placed)
    expected = place(c, 80, 20)
    assert (placed.left, placed.top) == (expected.left, expected.top) == (0, 16)
    assert (placed.width, placed.height) == (expected.width, expected.height) == (64, 16)


BAD_IMAGES: list[tuple[dict[str, Any], int, str]] = [
    ({"struct_size": 0}, INVALID_ARGUMENT, "struct_size is 0"),
    ({"struct_size": 1000}, INVALID_ARGUMENT, "struct_size is 1000"),
    ({"format": 0}, BAD_PICTURE, "format is 0"),
    ({"format": 7}, BAD_PICTURE, "format is 7"),
    ({"data": None}, INVALID_ARGUMENT, "data is null"),
    ({"width": 0}, BAD_PICTURE, "the picture is 0x18 pixels, too small to inspect"),
    ({"height": -1}, BAD_PICTURE, "the picture is 20x-1 pixels, too small"),
    ({"width": 1, "height": 1}, BAD_PICTURE, "needs at least 16 pixels on each side"),
    ({"width": 15}, BAD_PICTURE, "the picture is 15x18 pixels, too small"),
    ({"width": 2**15 + 1}, BAD_PICTURE, "is 32769x18 pixels: at most 32768 on a side"),
    ({"height": 2**62}, BAD_PICTURE, "is 20x4611686018427387904 pixels: at most"),
    ({"width": 10_001, "height": 10_000}, BAD_PICTURE, "at most 100 million are read"),
    ({"stride": 59}, INVALID_ARGUMENT, "stride is 59 bytes: a row has 60"),
    ({"stride": -60}, INVALID_ARGUMENT, "stride is -60"),
    ({"stride": 2**40}, INVALID_ARGUMENT, "stride is 1099511627776"),
    ({"format": NV12, "width": 19}, BAD_PICTURE, "NV12 picture of 19x18"),
    ({"format": NV12, "height": 17}, BAD_PICTURE, "NV12 picture of 20x17"),
    ({"format": NV12, "chroma_stride": 19}, INVALID_ARGUMENT, "chroma_stride is 19"),
    ({"format": NV12, "matrix": 2}, INVALID_ARGUMENT, "matrix is 2"),
    ({"format": NV12, "range": 2}, INVALID_ARGUMENT, "its range 2"),
    ({"matrix": 1}, INVALID_ARGUMENT, "a picture that is not NV12"),
]


@pytest.mark.parametrize(("change", "status", "words"), BAD_IMAGES)
def test_a_bad_picture_is_refused_in_words(
    parts: Parts, change: dict[str, Any], status: int, words: str
) -> None:
    image, c = as_image(noise(0, 18, 20, 3), **change), contract(8, 8)
    out, placed = np.full((8, 8, 3), 9, np.uint8), Placed(ctypes.sizeof(Placed), 0, 1, 2, 3, 4)
    parts.refuses(status, words, "anoco_preprocess", image, as_input(c), out, placed)
    assert (out == 9).all() and (placed.left, placed.height) == (1, 4)


BAD_INPUTS: list[tuple[dict[str, Any], str]] = [
    ({"struct_size": 3}, "struct_size is 3"),
    ({"fit": 2}, "fit is 2"),
    ({"width": 0}, "the input is 0x8"),
    ({"height": 2**15 + 1}, "the input is 8x32769"),
    ({"stride": 0}, "stride 0"),
    ({"stride": 3}, "stride 3: give whole patches"),
    ({"fill": (ctypes.c_uint8 * 4)(0, 0, 0, 1)}, "the input's reserved field is 1"),
]


@pytest.mark.parametrize(("change", "words"), BAD_INPUTS)
def test_a_bad_input_is_refused_in_words(parts: Parts, change: dict[str, Any], words: str) -> None:
    target, out = as_input(contract(8, 8)), np.full((8, 8, 3), 9, np.uint8)
    for name, value in change.items():
        setattr(target, name, value)
    image = as_image(noise(0, 18, 20, 3))
    parts.refuses(INVALID_ARGUMENT, words, "anoco_preprocess", image, target, out, None)
    assert (out == 9).all()


def test_null_is_refused_and_an_old_header_understood(parts: Parts) -> None:
    picture, target, out = (
        noise(0, 18, 20, 3),
        as_input(contract(8, 8)),
        np.empty((8, 8, 3), np.uint8),
    )
    image = as_image(picture)
    for arguments, words in (
        ((None, target, out, None), "image is null"),
        ((image, None, out, None), "input is null"),
        ((image, target, None, None), "out is null"),
        ((image, target, out, Placed()), "struct_size is 0"),
    ):
        parts.refuses(INVALID_ARGUMENT, words, "anoco_preprocess", *arguments)
    image.struct_size = Image.stride.offset  # a header that had no strides yet
    image.stride = 1
    parts.done("anoco_preprocess", image, target, out, None)
    np.testing.assert_array_equal(out, prepare(picture, contract(8, 8))[0])


# The patch mask.


def scored_masks(
    parts: Parts,
    c: InputContract,
    sizes: Sequence[tuple[int, int]],
    region: Region | None,
    ignore: Mask | None,
    views: Sequence[Affine],
) -> list[Mask]:
    """Ask one patch mask about several pictures in turn."""
    points = np.array(region.points if region else [], np.float64)
    mask = None if ignore is None else ignore.astype(np.uint8)
    out = np.full((len(sizes), c.rows, c.cols), 9, np.uint8)
    mask_size = (0, 0) if ignore is None else (ignore.shape[1], ignore.shape[0])
    asked = np.array(sizes, np.int64), np.array(views, np.float64)
    status = parts(
        "parts_scored", as_parts(c), points, len(points), mask, *mask_size, *asked, len(sizes), out
    )
    if status != 0:
        raise LookupError(parts.error)
    assert set(np.unique(out)) <= {0, 1}
    return list(out.astype(np.bool_))


fractions = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(-0.2, 1.2))
polygons = st.lists(st.tuples(fractions, fractions), min_size=3, max_size=7).map(
    lambda points: Region(points=tuple(points))
)


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    height, width = draw(sides), draw(sides)
    rng = np.random.default_rng(draw(seeds))
    coarse = rng.random((draw(st.integers(1, 5)), draw(st.integers(1, 5)))) < draw(
        st.sampled_from([0.1, 0.5])
    )
    rows = np.arange(height) * coarse.shape[0] // height
    return np.ascontiguousarray(coarse[rows][:, np.arange(width) * coarse.shape[1] // width])


@some
@given(grids, st.tuples(sides, sides), st.none() | polygons, st.none() | masks())
def test_patches_count_as_python_counts_them(
    parts: Parts,
    c: InputContract,
    size: tuple[int, int],
    region: Region | None,
    ignore: Mask | None,
) -> None:
    expected = inspected_patches(c, place(c, *size), region, ignore)
    if expected.any():
        (got,) = scored_masks(parts, c, [size], region, ignore, [IDENTITY])
        np.testing.assert_array_equal(got, expected)
    else:
        with pytest.raises(LookupError, match="leave no patch to inspect"):
            scored_masks(parts, c, [size], region, ignore, [IDENTITY])


@pytest.mark.parametrize("size", [(1, 1), (100, 37), (37, 101), (1000, 999), (9, 250)])
def test_a_mask_of_single_pixels_is_sampled_where_pillow_samples_it(
    parts: Parts, size: tuple[int, int]
) -> None:
    """A patch of one pixel shows each pixel of the mask."""
    c, ignore = contract(41, 29), np.random.default_rng(3).random(size[::-1]) < 0.5
    ignore.flat[0] = False
    got = scored_masks(parts, c, [size], None, ignore, [IDENTITY])[0]
    np.testing.assert_array_equal(got, inspected_patches(c, place(c, *size), None, ignore))


def test_exactly_half_a_patch_is_not_enough(parts: Parts) -> None:
    c, ignore = contract(3, 1, 4), np.zeros((4, 12), np.bool_)
    ignore[:2, :4] = True  # half of the first patch, and one pixel less of the second
    ignore[:2, 4:8] = True
    ignore[0, 4] = False
    got = scored_masks(parts, c, [(12, 4)], None, ignore, [IDENTITY])[0]
    assert got.tolist() == [[False, True, True]]


def test_a_pixel_whose_centre_lies_on_the_region_s_edge(parts: Parts) -> None:
    """Such a pixel belongs to the region on the left and at the top, but not on the other sides."""
    c, box = contract(2, 2), ((0.25, 0.25), (0.75, 0.25), (0.75, 0.75), (0.25, 0.75))
    for points in (box, box[::-1]):
        region = Region(points=points)
        expected = inspected_patches(c, place(c, 9, 9), region)
        got = scored_masks(parts, c, [(9, 9)], region, None, [IDENTITY])[0]
        assert got.tolist() == expected.tolist() == [[True, False], [False, False]]


def test_a_share_of_fill_that_pillow_rounds_away_does_not_count(parts: Parts) -> None:
    c, size = contract(3, 1, 4, "letterbox"), (4, 4)  # the picture covers the patch in the middle
    pixels = inspected_pixels(c, place(c, *size))
    for shift, seen in ((-1e-9, True), (-1e-3, False)):
        view: Affine = (1, 0, shift, 0, 1, 0)
        expected = visible_patches(c, view, *pixels)
        assert expected.tolist() == [[False, seen, False]]
        np.testing.assert_array_equal(
            scored_masks(parts, c, [size], None, None, [view])[0], expected
        )


def some_views(seed: int, c: InputContract) -> list[Affine]:
    rng = np.random.default_rng(seed)
    flip: Affine = (-1, 0, c.width, 0, 1, 0)
    shift: Affine = (1, 0, float(rng.integers(1, 9)) / 2, 0, 1, float(rng.integers(-9, 9)) / 4)
    far: Affine = (1, 0, 1e7, 0, 1, -1e7)
    return [IDENTITY, flip, shift, draw_view(rng, c.width, c.height), far]


@some
@given(grids, st.lists(st.tuples(sides, sides), min_size=2, max_size=2), polygons, masks(), seeds)
def test_patches_of_a_view_count_as_python_counts_them(
    parts: Parts,
    c: InputContract,
    sizes: list[tuple[int, int]],
    region: Region,
    ignore: Mask,
    seed: int,
) -> None:
    """Two pictures take turns, some with a region of interest or a mask."""
    roi = region if seed % 2 else None
    mask = ignore if seed % 3 == 0 else None
    views = [v for v in some_views(seed, c)[1:] for _ in sizes] * 2
    asked = [*sizes * (len(views) // len(sizes))]
    for got, view, size in zip(
        scored_masks(parts, c, asked, roi, mask, views), views, asked, strict=True
    ):
        pixels = inspected_pixels(c, place(c, *size), roi, mask)
        np.testing.assert_array_equal(got, visible_patches(c, view, *pixels))


@pytest.mark.parametrize("size", [(128, 128), (128, 96), (96, 128)])
def test_the_views_of_the_paper_count_as_python_counts_them(
    parts: Parts, size: tuple[int, int]
) -> None:
    c = contract(16, 16, 8, "letterbox")
    region = Region(points=((0.1, 0.05), (0.95, 0.2), (0.8, 0.9), (0.2, 0.97)))
    views = paired_views(0, c.width, c.height)
    pixels = inspected_pixels(c, place(c, *size), region, None)
    for got, view in zip(
        scored_masks(parts, c, [size] * len(views), region, None, views), views, strict=True
    ):
        expected = visible_patches(c, view, *pixels)
        np.testing.assert_array_equal(got, expected)
        assert got.any() and not got.all()


# The anomaly map.


def native_map(parts: Parts, energy: Map, known: Mask | None, stride: int) -> Map:
    rows, cols = energy.shape
    out = np.full((rows * stride, cols * stride), np.nan, np.float32)
    mask = None if known is None else known.astype(np.uint8)
    parts.done("anoco_energy_map", energy, mask, rows, cols, stride, out)
    return out


@some
@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 17),
    st.sampled_from([None, 0.0, 0.3, 0.95, 1.0]),
    seeds,
)
def test_the_map_is_pythons(
    parts: Parts, rows: int, cols: int, stride: int, share: float | None, seed: int
) -> None:
    c, energy = contract(cols, rows, stride), energies(seed, rows, cols)
    known = np.random.default_rng(seed).random((rows, cols)) < (1 if share is None else share)
    expected = MapMaker(c)(energy, known)
    energy[~known] = np.nan  # any value may stand there
    got = native_map(parts, energy, None if share is None else known, stride)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * max(expected.max(), 1e-9))


def test_the_maps_arguments_are_checked(parts: Parts) -> None:
    energy, out = np.ones((2, 3), np.float32), np.full((4, 6), 9, np.float32)
    bad = energy.copy()
    bad[1, 1] = np.nan
    for arguments, words in (
        ((None, None, 2, 3, 2, out), "energy is null"),
        ((energy, None, 2, 3, 2, None), "out is null"),
        ((energy, None, 0, 3, 2, out), "a map of 0 x 3 patches"),
        ((energy, None, 2, -3, 2, out), "a map of 2 x -3 patches"),
        ((energy, None, 2, 3, 0, out), "of stride 0"),
        ((energy, None, 2**40, 2**40, 2**40, out), "2^31 pixels at most"),
        ((energy, None, 2**20, 2**11, 2, out), "2^31 pixels at most"),
        ((bad, None, 2, 3, 2, out), "the energy of patch 4 is nan"),
        ((np.full_like(energy, np.inf), None, 2, 3, 2, out), "the energy of patch 0 is inf"),
    ):
        parts.refuses(INVALID_ARGUMENT, words, "anoco_energy_map", *arguments)
    assert (out == 9).all()


# Counts for the pixel metrics, which tests/calibration/test_metrics.py compares with NumPy's.


def test_the_arguments_of_counts_are_checked(parts: Parts) -> None:
    two, maps = np.float32([1, 2]), np.float32([0.5, 2, 7])
    at, sizes = np.array([maps.ctypes.data], np.uintp), np.array([3], np.int64)
    between, equal = np.full(3, 100, np.int64), np.full(2, 100, np.int64)
    parts.done("anoco_count_values", two, 2, at, sizes, 1, between, equal)
    assert between.tolist() == [101, 100, 101] and equal.tolist() == [100, 101]
    parts.done("anoco_count_values", two, 2, None, None, 0, between, equal)
    out = (at, sizes, 1, between, equal)
    for arguments, words in (
        ((None, 2, *out), "thresholds is null"),
        ((two, 0, *out), "0 thresholds and 1 maps: give 1 to 2^29"),
        ((two, 2**29 + 1, *out), "give 1 to 2^29 thresholds"),
        ((two[::-1].copy(), 2, *out), "threshold 1 is not above the one before it"),
        ((np.float32([0, -0.0]), 2, *out), "threshold 1 is not above the one before it"),
        ((np.float32([1, np.inf]), 2, *out), "threshold 1 is inf; give finite numbers"),
        ((np.float32([-1, 1]), 2, *out), "threshold 0 is -1.0"),
        ((two, 2, None, sizes, 1, between, equal), "values is null"),
        ((two, 2, at, None, 1, between, equal), "sizes is null"),
        ((two, 2, at, sizes, -1, between, equal), "2 thresholds and -1 maps"),
        ((two, 2, at, -sizes, 1, between, equal), "the size of map 0 is negative"),
        ((two, 2, 0 * at, sizes, 1, between, equal), "a map is null"),
        ((two, 2, at, sizes, 1, None, equal), "between is null"),
        ((two, 2, at, sizes, 1, between, None), "equal is null"),
    ):
        parts.refuses(INVALID_ARGUMENT, words, "anoco_count_values", *arguments)
    maps[1] = np.nan
    parts.refuses(INVALID_ARGUMENT, "value 1 is nan", "anoco_count_values", two, 2, *out)
    assert between.tolist() == [101, 100, 101] and equal.tolist() == [100, 101]


@some
@given(grids, sides, sides, seeds)
def test_the_map_at_the_pictures_size_is_pythons(
    parts: Parts, c: InputContract, width: int, height: int, seed: int
) -> None:
    small = np.random.default_rng(seed).random((c.height, c.width), np.float32)
    out = np.empty((height, width), np.float32)
    parts.done("parts_enlarge", as_parts(c), width, height, small, out)
    np.testing.assert_allclose(out, enlarge(small, place(c, width, height)), rtol=1e-6)


# Regions.


def check_regions(
    parts: Parts,
    c: InputContract,
    size: tuple[int, int],
    energy: Map,
    threshold: float,
    min_area: float,
    map_: Map | None = None,
    compared: Map | None = None,
) -> int:
    input_map = MapMaker(c)(energy, np.ones_like(energy, np.bool_)) if map_ is None else map_
    input_map = np.ascontiguousarray(input_map)
    placement = place(c, *size)
    expected, outline = find_regions(energy, input_map, threshold, c, placement, min_area, compared)
    compared = energy if compared is None else compared
    found, count = np.empty((energy.size + 1, 8)), np.empty(1, np.int64)
    drawn = np.full((c.height, c.width), 9, np.uint8)
    parts.done(
        *("parts_regions", as_parts(c), *size, energy, compared, input_map, threshold, min_area),
        *(found, count, drawn),
    )
    assert found[: count[0]].tolist() == [
        [*map(float, r.box), r.area, r.peak, r.row, r.col] for r in expected
    ]
    np.testing.assert_array_equal(drawn, outline)
    return len(expected)


@some
@given(
    grids,
    st.tuples(sides, sides),
    st.sampled_from([0.05, 0.9, 3.6, 4.9, 8.1, 12.0]),
    st.sampled_from([0.0, 1.0, 60.0, 400.0]),
    seeds,
)
def test_regions_are_those_that_python_finds(
    parts: Parts,
    c: InputContract,
    size: tuple[int, int],
    threshold: float,
    min_area: float,
    seed: int,
) -> None:
    check_regions(parts, c, size, energies(seed, c.rows, c.cols), threshold, min_area)


@some
@given(grids, st.sampled_from([0.05, 0.9, 3.6]), st.sampled_from([0.0, 60.0]), seeds)
def test_smoothed_energies_and_their_regions_are_pythons(
    parts: Parts, c: InputContract, threshold: float, min_area: float, seed: int
) -> None:
    scored = np.random.default_rng(seed).random((c.rows, c.cols)) < 0.8
    energy = np.where(scored, energies(seed, c.rows, c.cols), np.float32(0))
    smoothed = np.full_like(energy, 9)
    parts("parts_smooth", energy, scored.astype(np.uint8), c.rows, c.cols, smoothed)
    np.testing.assert_array_equal(smoothed, smooth_grid(energy, scored))
    check_regions(parts, c, (100, 80), energy, threshold, min_area, compared=smoothed)


@pytest.mark.parametrize("seed", range(4))
def test_many_regions_in_the_order_of_their_peaks(parts: Parts, seed: int) -> None:
    energy = np.zeros((17, 23), np.float32)
    energy[::2, ::2] = np.random.default_rng(seed).integers(1, 5, (9, 12))
    assert check_regions(parts, contract(23, 17, 4), (100, 100), energy, 0.5, 0.0) == 108


def test_numbers_are_compared_as_numpy_compares_them(parts: Parts) -> None:
    """A seed is compared with the threshold in float64, its surroundings in float32."""
    c, tenth = contract(5, 1, 2), np.float32(0.1)
    above, below = math.nextafter(float(tenth), 0), math.nextafter(float(tenth), 1)
    assert check_regions(parts, c, (10, 2), np.full((1, 5), tenth), above, 0.0) == 1
    assert check_regions(parts, c, (10, 2), np.full((1, 5), tenth), below, 0.0) == 0
    energy = np.array([[0.1, 1, 0.1, 0, 0]], np.float32)
    level = np.repeat(np.repeat(energy, 2, axis=0), 2, axis=1)
    for threshold in (0.2, float(tenth) * 2, 0.1999999, 0.2000001):
        check_regions(parts, c, (10, 2), energy, threshold, 0.0, level)
        check_regions(parts, c, (10, 2), energy, threshold, 0.0, np.ones_like(level))


def test_a_patch_that_smoothing_pushed_under_the_level_is_drawn_whole(parts: Parts) -> None:
    energy = np.zeros((3, 3), np.float32)
    energy[1, 1], energy[1, 2] = 1, 0.6
    flat = np.zeros((12, 12), np.float32)
    assert check_regions(parts, contract(3, 3, 4), (12, 12), energy, 0.9, 0.0, flat) == 1


# Augmented views.


@some
@given(sides, sides, seeds)
def test_a_view_is_warped_as_pillow_does_it(
    parts: Parts, width: int, height: int, seed: int
) -> None:
    rgb, fill = noise(seed, height, width, 3), (7, 100, 250)
    for view in some_views(seed, contract(width, height)):
        out = np.empty_like(rgb)
        color = np.array(fill, np.uint8)
        parts("parts_warp", rgb, width, height, np.array(view, np.float64), color, out)
        np.testing.assert_array_equal(out, warp(rgb, view, fill))


@some
@given(grids, seeds, st.lists(st.floats(-100, 500), min_size=4, max_size=4))
def test_a_views_box_in_its_source(
    parts: Parts, c: InputContract, seed: int, box: list[float]
) -> None:
    for view in some_views(seed, c):
        out = np.empty(4)
        parts("parts_box_in_source", np.array(view, np.float64), np.array(box), out)
        assert tuple(out) == box_in_source(view, (box[0], box[1], box[2], box[3]))


def averaged(
    parts: Parts, c: InputContract, views: Sequence[tuple[Affine, Map, Mask]], wanted: Mask
) -> tuple[int, Map]:
    out = np.full((c.rows, c.cols), 9, np.float32)
    status = parts(
        "parts_average",
        as_parts(c),
        np.array([view for view, _, _ in views], np.float64),
        np.array([energy for _, energy, _ in views], np.float32),
        np.array([mask for _, _, mask in views]).astype(np.uint8),
        len(views),
        wanted.astype(np.uint8),
        out,
    )
    return status, out


@some
@given(grids, seeds, st.sampled_from([0.0, 0.2, 0.8, 1.0]))
def test_views_are_averaged_as_python_does_it(
    parts: Parts, c: InputContract, seed: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    views = []
    for k, view in enumerate(some_views(seed, c)):
        energy = energies(seed + k, c.rows, c.cols) * (k != 1)
        known = rng.random((c.rows, c.cols)) < share
        energy[~known] = np.nan
        views.append((view, energy, known))
    wanted = views[0][2]
    status, got = averaged(parts, c, views, wanted)
    assert status == 0, parts.error
    np.testing.assert_allclose(got, average(c, views, wanted), rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_energies_that_are_none_are_refused(parts: Parts, bad: float) -> None:
    c, known = contract(2, 2, 4), np.ones((2, 2), np.bool_)
    energy = np.array([[1, 2], [bad, 3]], np.float32)
    status, out = averaged(parts, c, [(IDENTITY, energy, known)], known)
    assert status == CORRUPT and "the energy of patch 2 of a view is" in parts.error
    assert (out == 9).all()


def test_a_patch_that_no_view_sees_is_no_score(parts: Parts) -> None:
    c, known = contract(2, 2, 4), np.ones((2, 2), np.bool_)
    away: Affine = (1, 0, 4, 0, 1, 0)
    energy = np.ones((2, 2), np.float32)
    status, out = averaged(parts, c, [(away, energy, known)], known)
    assert status == INTERNAL and "seen by no view" in parts.error
    assert (out == 9).all()
