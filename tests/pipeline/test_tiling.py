"""Tiles form one larger patch grid without seams, and later stages work as on one input."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import fails, ok, refused
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.bundle import Bundle, InputContract, create_bundle
from anoco_edge.bundle.documents import sealed_document
from anoco_edge.cli.settings import read_tiles
from anoco_edge.detector import Detector
from anoco_edge.engines import Engine, open_engine
from anoco_edge.errors import BundleError, PictureError, UsageError
from anoco_edge.images.contract import Tiles
from anoco_edge.pipeline.tiling import MOST_TILES, Tiling, plan_tiles
from anoco_edge.teaching import NewPicture, Settings, Teacher, TileSettings

STRIDE = 16
# Windows of 64 x 64 cover 160 x 112 in three columns and two rows, overlapping by one patch.
TILES = Tiles(width=160, height=112, columns=(0, 48, 96), rows=(0, 48))
SIDES = st.integers(1, 6).map(lambda patches: patches * STRIDE)


def contract(width: int = 64, height: int = 64, dim: int = 8) -> InputContract:
    return InputContract(
        width=width,
        height=height,
        stride=STRIDE,
        rows=height // STRIDE,
        cols=width // STRIDE,
        dim=dim,
    )


def noise(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


class Counting:
    """Another engine that also counts how many windows it gets at a time."""

    name, fingerprint = "counting", "counting"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.batches: list[int] = []

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        self.batches.append(len(pixels))
        return self._engine.features(pixels)


class Context:
    """An engine for the mean colour of a patch and its neighbours.

    Beyond the window all is black.
    """

    name, fingerprint = "context", "context"

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        batch, height, width, _ = pixels.shape
        rows, cols = height // STRIDE, width // STRIDE
        own = pixels.reshape(batch, rows, STRIDE, cols, STRIDE, 3).mean(axis=(2, 4))
        ring = np.pad(own, ((0, 0), (1, 1), (1, 1), (0, 0)))
        around = sum(ring[:, i : i + rows, j : j + cols] for i in range(3) for j in range(3))
        return np.asarray(around, np.float32).reshape(batch, rows * cols, 3)


def stitched(engine: Engine, window: InputContract, tiles: Tiles, canvas: Any) -> Any:
    whole = Tiling(window, tiles)
    rows, cols = whole.contract.rows, whole.contract.cols
    return whole.features(engine, canvas[None])[0].reshape(rows, cols, -1)


# ---- one grid


def test_the_grid_is_that_of_an_engine_as_large_as_the_canvas(tmp_path: Path) -> None:
    """It is equal to the bit, where a patch depends on its own pixels only."""
    small = make_tiny_bundle(tmp_path / "small.anoco")
    large = make_tiny_bundle(tmp_path / "large.anoco", size=(160, 112))
    canvases = np.stack([noise(160, 112, seed) for seed in (1, 2)])
    canvas = Tiling(small.manifest.input, TILES)
    assert canvas.contract == large.manifest.input
    found = canvas.features(open_engine("auto", small), canvases)
    expected = open_engine("auto", large).features(canvases)
    assert found.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("common", [2, 3, 4])
def test_enough_overlap_leaves_no_seam(common: int) -> None:
    """Patches are taken from the tile that has more around them.

    An overlap of two patches is enough for an engine that looks one patch far.
    """
    step = 6 * STRIDE - common * STRIDE
    starts = (0, step, 2 * step)
    side = 2 * step + 6 * STRIDE
    tiles = Tiles(width=side, height=side, columns=starts, rows=starts)
    canvas = noise(side, side)
    window = contract(6 * STRIDE, 6 * STRIDE, dim=3)
    found = stitched(Context(), window, tiles, canvas)
    expected = Context().features(canvas[None])[0].reshape(found.shape)
    np.testing.assert_array_equal(found, expected)
    # An engine that sees more would differ at the outer border, and only there.
    beyond = np.pad(canvas, ((STRIDE, STRIDE), (STRIDE, STRIDE), (0, 0)), mode="edge")
    patches = side // STRIDE
    ideal = Context().features(beyond[None])[0].reshape(patches + 2, patches + 2, 3)[1:-1, 1:-1]
    wrong = (found != ideal).any(axis=2)
    assert not wrong[1:-1, 1:-1].any()
    assert wrong[0].all() and wrong[-1].all() and wrong[:, 0].all() and wrong[:, -1].all()


@pytest.mark.parametrize(("common", "seams"), [(0, {2, 3, 5, 6}), (1, {2, 4})])
def test_without_enough_overlap_a_seam_shows(common: int, seams: set[int]) -> None:
    """Tiles have three patches; with an odd overlap, the later tile has the larger half."""
    step = (3 - common) * STRIDE
    width = 2 * step + 3 * STRIDE
    tiles = Tiles(width=width, height=3 * STRIDE, columns=(0, step, 2 * step), rows=(0,))
    canvas = noise(width, 3 * STRIDE)
    found = stitched(Context(), contract(3 * STRIDE, 3 * STRIDE, dim=3), tiles, canvas)
    expected = Context().features(canvas[None])[0].reshape(found.shape)
    columns = np.flatnonzero((found != expected).any(axis=(0, 2)))
    assert set(columns.tolist()) == seams


def test_at_most_eight_windows_go_through_the_engine_at_once(tiny_bundle: Bundle) -> None:
    engine = Counting(open_engine("auto", tiny_bundle))
    starts = (0, 64, 128)
    tiles = Tiles(width=192, height=192, columns=starts, rows=starts)
    canvas = Tiling(tiny_bundle.manifest.input, tiles)
    assert canvas.windows == 9
    canvas.features(engine, np.stack([noise(192, 192), noise(192, 192, 1)]))
    assert engine.batches == [8, 1, 8, 1]
    engine.batches.clear()
    untiled = Tiling(tiny_bundle.manifest.input)
    untiled.features(engine, np.stack([noise(64, 64)] * 3))
    assert untiled.windows == 1 and engine.batches == [3]


# ---- where tiles lie


def covered(tiles: Tiles, window: InputContract) -> None:
    """Check that the windows cover the tiled input, and that all start on the patch grid."""
    for starts, side, length in (
        (tiles.columns, window.width, tiles.width),
        (tiles.rows, window.height, tiles.height),
    ):
        assert starts[0] == 0 and starts[-1] + side == length
        for before, after in pairwise(starts):
            assert before < after <= before + side and after % window.stride == 0
    window.tiled(tiles)  # gives the same message for its own parameter


def in_common(starts: Sequence[int], side: int, canvas: int, length: int) -> Fraction:
    """Return the smallest overlap of two neighbours, in pixels of the picture."""
    least = min(a + side - b for a, b in pairwise(starts))
    return Fraction(least * length, canvas)


pictures = st.tuples(st.integers(16, 3000), st.integers(16, 3000))
overlaps = st.none() | st.integers(0, 200)
few = limits(max_examples=80, deadline=None, derandomize=True)


@few
@given(SIDES, SIDES, pictures, st.tuples(st.integers(1, 9), st.integers(1, 9)), overlaps)
def test_so_many_tiles(
    width: int,
    height: int,
    picture: tuple[int, int],
    grid: tuple[int, int],
    overlap: int | None,
) -> None:
    window = contract(width, height)
    try:
        tiles = plan_tiles(window, picture, grid=grid, overlap=overlap)
    except UsageError as error:
        assert overlap is not None and "leaves nothing of tiles" in str(error)
        return
    assert (len(tiles.columns), len(tiles.rows)) == grid
    covered(tiles, window)
    check_overlap(tiles, window, picture, overlap)


def check_overlap(
    tiles: Tiles, window: InputContract, picture: tuple[int, int], overlap: int | None
) -> None:
    for starts, side, canvas, length in (
        (tiles.columns, window.width, tiles.width, picture[0]),
        (tiles.rows, window.height, tiles.height, picture[1]),
    ):
        if len(starts) > 1 and overlap is not None:
            assert in_common(starts, side, canvas, length) >= overlap
        elif len(starts) > 1:
            eighth = min(math.ceil(side / 8 / STRIDE) * STRIDE, side - STRIDE)
            assert in_common(starts, side, canvas, canvas) >= eighth


@few
@given(SIDES, SIDES, pictures, st.tuples(st.integers(100, 900), st.integers(100, 900)), overlaps)
def test_tiles_of_a_size(
    width: int,
    height: int,
    picture: tuple[int, int],
    size: tuple[int, int],
    overlap: int | None,
) -> None:
    window = contract(width, height)
    try:
        tiles = plan_tiles(window, picture, size=size, overlap=overlap)
    except UsageError as error:
        assert f"more than {MOST_TILES}" in str(error) or "leaves nothing of tiles" in str(error)
        return
    covered(tiles, window)
    check_overlap(tiles, window, picture, overlap)
    for starts, side, canvas, length, tile in (
        (tiles.columns, width, tiles.width, picture[0], size[0]),
        (tiles.rows, height, tiles.height, picture[1], size[1]),
    ):
        # A tile shows the requested size, or less by only as much as the patch grid requires.
        exact = Fraction(length * side, tile)
        assert (len(starts), canvas) == (1, side) if length <= tile else exact <= canvas
        assert length <= tile or canvas < exact + STRIDE


def test_the_canvas_of_square_tiles_has_the_shape_of_the_picture() -> None:
    tiles = plan_tiles(contract(), (2000, 1500), size=(500, 500))
    assert (tiles.width, tiles.height) == (256, 192)
    assert tiles.columns == (0, 48, 96, 144, 192) and tiles.rows == (0, 48, 80, 128)


def test_the_overlap_is_met_although_the_canvas_is_rounded_up() -> None:
    """131 pixels in tiles of 100 need 83.84 input pixels, rounded up to 96.

    A tile shows 87 pixels.
    """
    tiles = plan_tiles(contract(), (131, 100), size=(100, 100), overlap=50)
    assert tiles.width == 96 and tiles.columns == (0, 16, 32)
    assert in_common(tiles.columns, 64, 96, 131) >= 50


def test_the_overlap_is_met_exactly_where_it_can_be() -> None:
    """This also holds where a tile is not a whole number of pixels, here 100 / 3."""
    tiles = plan_tiles(contract(), (50, 64), grid=(3, 1), overlap=25)
    assert tiles.columns == (0, 16, 32) and tiles.width == 96


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"grid": (0, 2)}, "0 tiles; give one or more each way"),
        ({"grid": (2, -1)}, "-1 tiles"),
        ({"grid": (33, 32)}, "33 x 32 tiles are more than 1024"),
        ({"grid": (10**9, 10**9)}, "tiles are more than 1024"),
        ({"size": (1, 1)}, "are more than 1024"),
        ({"size": (0, 10)}, "tiles of 0 pixels"),
        ({"grid": (2, 2), "overlap": -1}, "an overlap of -1 pixels; give 0 or more"),
        ({"grid": (1, 1), "overlap": -1}, "an overlap of -1 pixels"),
        ({"grid": (2, 2), "overlap": 1000}, "an overlap of 1000 pixels leaves nothing of tiles"),
        ({"grid": (2, 2), "overlap": 10**400}, "leaves nothing of tiles"),
        ({"size": (100, 100), "overlap": 100}, "100 pixels leaves nothing of tiles of 100"),
        ({"size": (100, 100), "overlap": 99}, "99 pixels leaves nothing of tiles"),
        ({"size": (5000, 5000), "overlap": 5000}, "leaves nothing of tiles of 5000"),
        ({"grid": (2, 2), "size": (9, 9)}, "by their number or by their size; give one"),
        ({}, "by their number or by their size; give one"),
    ],
)
def test_tiles_that_cannot_be(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_tiles(contract(), (1000, 800), **asked)


def test_rows_and_columns_of_the_bank_are_numbers_of_16_bits() -> None:
    wide = contract(64 * STRIDE, 64)
    assert plan_tiles(wide, (9000, 9), grid=(512, 1), overlap=0).width == 2**15 * STRIDE
    with pytest.raises(UsageError, match="513 x 1 tiles make more than 32768 patches one way"):
        plan_tiles(wide, (9000, 9), grid=(513, 1), overlap=0)


# ---- a product with tiles is one with a larger input


def bundle_of(path: Path, size: tuple[int, int], fit: str = "stretch") -> Bundle:
    """Make a tiny bundle with this input size, whose fill is magenta."""
    made = make_tiny_bundle(path.with_suffix(".plain"), size=size)
    manifest = made.manifest
    change = {"fit": fit, "fill": (255, 0, 255)}
    return create_bundle(
        path,
        backbone=manifest.backbone,
        contract=manifest.input.model_copy(update=change),
        parity={},
        tools={},
        files={f.path: (made.path / f.path).read_bytes() for f in manifest.files},
    )


def frames(*seeds: int, width: int = 320, height: int = 224) -> list[NewPicture]:
    return [
        NewPicture.from_array(f"frame{seed}", textured_picture(seed, width, height))
        for seed in seeds
    ]


def doubled(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the same scene at twice the resolution."""
    return rgb.repeat(2, axis=0).repeat(2, axis=1)


def png(mask: NDArray[np.bool_]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, "PNG")
    return buffer.getvalue()


def defective(width: int, height: int) -> NDArray[np.uint8]:
    """Put white ink from 45 % to 65 % of width and height, across every cut between tiles."""
    rgb = textured_picture(50, width, height)
    y0, y1, x0, x1 = (side * share // 100 for side in (height, width) for share in (45, 65))
    rgb[y0:y1, x0:x1] = 255
    return rgb


IGNORE = np.zeros((224, 320), np.bool_)
IGNORE[:, :100] = True


@pytest.mark.parametrize(
    ("fit", "asked", "size"),
    [
        ("stretch", Settings({}), (320, 224)),
        ("stretch", Settings({"pooling": "top5"}), (320, 224)),
        ("stretch", Settings({}, region=[(70, 40), (300, 220)]), (320, 224)),
        ("stretch", Settings({}, mask=png(IGNORE)), (320, 224)),
        ("letterbox", Settings({}), (320, 160)),
        ("stretch", Settings({"tta": "references"}), (320, 224)),
        ("stretch", Settings({}, max_patches=90), (320, 224)),
    ],
    ids=["plain", "top5", "region", "mask", "letterbox", "views", "coreset"],
)
def test_everything_is_as_on_one_input_of_the_size_of_the_canvas(
    tmp_path: Path, fit: str, asked: Settings, size: tuple[int, int]
) -> None:
    width, height = size
    small = bundle_of(tmp_path / "small.anoco", (64, 64), fit)
    large = bundle_of(tmp_path / "large.anoco", (160, 112), fit)
    parts = frames(1, 2, 3, width=width, height=height)
    parts.append(NewPicture.from_array("large", doubled(textured_picture(4, width, height))))
    tiles = TileSettings(grid=(3, 2))
    tiled = Teacher.open(small.path).enroll(parts, settings=dataclasses.replace(asked, tiles=tiles))
    plain = Teacher.open(large.path).enroll(parts, settings=asked)
    assert tiled.product.tiles == TILES and plain.product.tiles is None
    assert tiled.product.bank is not None and plain.product.bank is not None
    assert tiled.product.bank.sha256 == plain.product.bank.sha256
    assert tiled.product.threshold == plain.product.threshold
    assert tiled.product.threshold.value is not None
    bad = defective(width, height)
    pictures = [textured_picture(51, width, height), bad, doubled(bad)]
    found = Detector.open(small.path).inspect_batch(pictures)
    expected = Detector.open(large.path).inspect_batch(pictures)
    assert "anomalous" == found[1].verdict == found[2].verdict
    for one, other in zip(found, expected, strict=True):
        assert one.energy.shape == (7, 10)
        for name in ("energy", "scored", "input_map", "anchor", "similarity", "map"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
        assert (one.score, one.regions, one.verdict) == (other.score, other.regions, other.verdict)
        ours, theirs = one.evidence(*one.peak), other.evidence(*other.peak)
        assert dataclasses.replace(ours, file=theirs.file) == theirs


def test_a_defect_on_the_border_of_two_tiles_is_one_region(tiny_bundle: Bundle) -> None:
    """Two tiles of 64 pixels do not overlap, and the border runs through x = 64."""
    good = frames(1, 2, 3, width=128, height=64)
    tiles = TileSettings(grid=(2, 1), overlap=0)
    product = (
        Teacher.open(tiny_bundle.path).enroll(good, settings=Settings({}, tiles=tiles)).product
    )
    assert product.tiles == Tiles(width=128, height=64, columns=(0, 64), rows=(0,))
    rgb = textured_picture(9, 128, 64)
    rgb[16:32, 48:80] = 255
    result = Detector.open(tiny_bundle.path).inspect(rgb)
    (region,) = result.regions
    x0, y0, x1, y1 = region.box
    assert 40 <= x0 <= 48 and 80 <= x1 <= 88 and 8 <= y0 <= 16 and 32 <= y1 <= 40
    assert region.row == 1 and region.col in (3, 4)
    # The only steps in the map are those of the ink itself.
    assert abs(result.map[24, 63] - result.map[24, 64]) < 0.05 * result.map.max()


def test_evidence_points_at_the_right_place_of_a_larger_reference(tiny_bundle: Bundle) -> None:
    """Content that moves by whole patches across the border of tiles is found where it was.

    Boxes are in pixels of each picture, and the reference is twice as large.
    """
    reference = noise(256, 128)
    small = np.asarray(Image.fromarray(reference).resize((128, 64), Image.Resampling.BILINEAR))
    tiles = TileSettings(grid=(2, 1), overlap=0)
    Teacher.open(tiny_bundle.path).enroll(
        [NewPicture.from_array("noise", reference)], settings=Settings({}, tiles=tiles)
    )
    result = Detector.open(tiny_bundle.path).inspect(np.roll(small, (16, 48), axis=(0, 1)))
    for row in range(4):
        for col in range(8):
            evidence = result.evidence(row, col)
            y, x = (row - 1) % 4, (col - 3) % 8
            assert (evidence.row, evidence.col) == (y, x)
            assert evidence.box == (32 * x, 32 * y, 32 * x + 32, 32 * y + 32)
            assert evidence.query_box == (16 * col, 16 * row, 16 * col + 16, 16 * row + 16)


def test_another_shape_is_refused_with_tiles_too(tiny_bundle: Bundle) -> None:
    tiles = Settings({}, tiles=TileSettings(size=(200, 200)))
    Teacher.open(tiny_bundle.path).enroll(frames(1, 2), settings=tiles)
    with pytest.raises(PictureError, match="is 224x320, the references are 320x224"):
        Detector.open(tiny_bundle.path).inspect(textured_picture(1, 224, 320))


def plate(seed: int, folder: Path) -> NewPicture:
    """Render 2000 x 1500 pixels of brushed metal."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:1500, 0:2000].astype(np.float32)
    dx, dy = rng.uniform(0, 3, 2)
    grey = 128 + 40 * np.sin((x + dx) / 60) + 30 * np.sin((y + dy) / 45)
    grey += 3 * rng.standard_normal(grey.shape, np.float32)
    path = folder / f"plate{seed}.bmp"
    Image.fromarray(np.repeat(grey.clip(0, 255).astype(np.uint8)[..., None], 3, 2)).save(path)
    return NewPicture.from_file(path)


def test_small_defects_that_vanish_in_the_whole_are_found_in_tiles(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "plates.anoco", size=(128, 128))
    good = [plate(seed, tmp_path) for seed in (1, 2, 3)]
    teacher = Teacher.open(bundle.path)
    teacher.enroll(good, "whole")
    teacher.enroll(good, "tiles", Settings({}, tiles=TileSettings(grid=(3, 2))))
    scratched = plate(4, tmp_path).rgb.copy()
    scratched[700:720, 1100:1120] = 80
    whole = Detector.open(bundle.path, "whole")
    tiles = Detector.open(bundle.path, "tiles")
    assert whole.inspect(scratched).verdict == "good"
    found = tiles.inspect(scratched)
    assert found.verdict == "anomalous"
    (region,) = found.regions
    x0, y0, x1, y1 = region.box
    assert x0 <= 1100 and x1 >= 1120 and y0 <= 700 and y1 >= 720
    assert (x1 - x0) * (y1 - y0) < 0.02 * 2000 * 1500
    assert tiles.inspect(plate(5, tmp_path).rgb).verdict == "good"


# ---- as a user asks for them


def bank_hash(path: Path) -> str:
    record = Bundle.open(path).product().bank
    assert record is not None
    return record.sha256


def test_tiles_come_and_go_and_the_bank_follows(here: Path) -> None:
    path = here / "line.anoco"
    untiled = bank_hash(path)
    ok("product", "set", path, "--tiles", "3x2", "--overlap", "10")
    product = Bundle.open(path).product()
    assert product.tiles is not None
    assert (len(product.tiles.columns), len(product.tiles.rows)) == (3, 2)
    tiled = bank_hash(path)
    assert len(Bundle.open(path).bank(product)) == 4 * tiles_patches(product.tiles)
    ok("infer", path, "parts", "--out", "out")
    ok("product", "set", path, "--tile-size", "48x40", "--overlap", "8")
    assert bank_hash(path) not in (untiled, tiled)
    ok("product", "set", path, "--tiles", "none")
    assert Bundle.open(path).product().tiles is None and bank_hash(path) == untiled


def tiles_patches(tiles: Tiles) -> int:
    return tiles.width * tiles.height // STRIDE**2


def test_tiles_at_the_first_enrolment_are_those_of_a_later_change(here: Path) -> None:
    good = sorted((here / "good").glob("*.png"))
    make_tiny_bundle(here / "first.anoco")
    ok("enroll", "first.anoco", *good, "--tile-size", "50")
    ok("product", "set", "line.anoco", "--tile-size", "50")
    first, later = Bundle.open("first.anoco").product(), Bundle.open("line.anoco").product()
    assert first.tiles == later.tiles and first.tiles is not None
    assert first.bank is not None and later.bank is not None
    assert first.bank.sha256 == later.bank.sha256 and first.threshold == later.threshold


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--tiles", "0x2"], "0 tiles; give one or more each way"),
        (["--tiles", "2x2", "--overlap", "96"], "an overlap of 96 pixels leaves nothing"),
        (["--tile-size", "40", "--overlap", "40"], "leaves nothing of tiles of 40"),
        (["--tiles", "2x2", "--tile-size", "40"], "--tiles and --tile-size exclude each other"),
        (["--overlap", "10"], "--overlap without tiles; give --tiles or --tile-size too"),
        (["--tiles", "none", "--overlap", "10"], "--overlap without tiles"),
        (["--tiles", "33x32"], "33 x 32 tiles are more than 1024"),
        (["--tiles", "999999999x999999999"], "tiles are more than 1024"),
        (["--tiles", "three"], "'three' are not tiles; write columns x rows: --tiles 3x2"),
        (["--tiles", "3"], "'3' are not tiles"),
        (["--tiles", "-3x2"], "'-3x2' are not tiles"),
        (["--tiles", "²x2"], "'²x2' are not tiles"),
        (["--tiles", "1" * 5000 + "x1"], "are not tiles"),
        (["--tiles", "2x2x2"], "'2x2x2' are not tiles"),
        (["--tiles", ""], "'' are not tiles"),
        (["--tile-size", "none"], "'none' is not a size"),
        (["--tile-size", "0"], "'0' is not a size"),
        (["--tile-size", "1"], "tiles are more than 1024"),
        (["--tile-size", "1e3"], "'1e3' is not a size"),
    ],
)
def test_what_can_be_mistyped_is_one_line(here: Path, options: list[str], says: str) -> None:
    assert says in refused(2, "product", "set", "line.anoco", *options)


def test_the_other_commands_say_the_same(here: Path) -> None:
    pictures = sorted((here / "parts").glob("*.png"))
    assert "'3' are not tiles" in refused(2, "enroll", "line.anoco", *pictures, "--tiles", "3")
    assert "--overlap without" in refused(2, "enroll", "line.anoco", *pictures, "--overlap", 1)
    assert "'3' are not tiles" in refused(2, "export", "--refs", "good", "--tiles", "3")
    assert "--overlap without" in refused(2, "export", "--refs", "good", "--overlap", 4)
    assert "tiles are for the product of --refs" in refused(2, "export", "--tiles", "3x2")


def test_read_tiles_leaves_alone_what_was_not_asked_for() -> None:
    assert read_tiles(None, None, None) is None
    assert read_tiles("none", None, None) == TileSettings()
    assert read_tiles("3X2", None, None) == TileSettings(grid=(3, 2))
    assert read_tiles(None, "800x600", 9) == TileSettings(size=(800, 600), overlap=9)


def test_tiles_before_any_reference(here: Path) -> None:
    make_tiny_bundle(here / "empty.anoco")
    assert "has no references yet" in fails(4, "product", "set", "empty.anoco", "--tiles", "2x2")
    names = [reference.name for reference in Bundle.open("line.anoco").product().references]
    ok("references", "remove", "line.anoco", *names)
    line = refused(2, "product", "set", "line.anoco", "--tiles", "2x2")
    assert "tiles need a reference picture; enrol a picture" in line
    with pytest.raises(UsageError, match="an overlap without tiles"):
        Teacher.open("line.anoco").configure(Settings({}, tiles=TileSettings(overlap=3)))


@pytest.mark.parametrize(
    "change",
    [
        {"width": 176},
        {"columns": [0, 40, 96]},
        {"columns": [0, 96]},
        {"columns": [48, 96]},
        {"rows": [48, 0]},
    ],
    ids=["too wide", "off the grid", "a gap", "not from 0", "backwards"],
)
def test_tiles_that_do_not_fit_the_model_are_refused_at_load(
    here: Path, change: dict[str, Any]
) -> None:
    path = here / "line.anoco"
    ok("product", "set", path, "--tiles", "3x2", "--overlap", "9")
    product = Bundle.open(path).product()
    assert product.tiles == TILES
    wrong = Tiles.model_validate({**json.loads(TILES.model_dump_json()), **change})
    bad = product.model_copy(update={"tiles": wrong})
    (path / "products" / "default" / "product.json").write_bytes(sealed_document(bad))
    with pytest.raises(BundleError, match="do not cover"):
        Detector.open(path)
    setting = ("product", "set", path, "--floor", 0)
    for command in (("infer", path, "parts"), ("verify", path), setting):
        assert "do not cover" in fails(4, *command)
    ok("product", "set", path, "--tiles", "3x2", "--overlap", "9")  # as the hint says
    assert Detector.open(path).inspect(textured_picture(0)).verdict == "good"
