"""The model's input equals Pillow's, bit for bit, and the mask says which patches are scored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.bundle.schema import Region
from anoco_edge.images.contract import Fit, InputContract
from anoco_edge.images.preprocess import Placement, patch_box, place, prepare
from anoco_edge.pipeline.patch_mask import inspected_patches

SIZES = [(1, 1), (3, 200), (200, 3), (64, 48), (65, 49), (640, 480), (48, 64), (1000, 7)]


def contract(
    fit: Fit = "stretch",
    rows: int = 3,
    cols: int = 4,
    stride: int = 16,
    fill: tuple[int, int, int] = (7, 100, 250),
) -> InputContract:
    return InputContract(
        width=cols * stride,
        height=rows * stride,
        fit=fit,
        fill=fill,
        stride=stride,
        rows=rows,
        cols=cols,
        dim=8,
    )


def picture(width: int, height: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(width * 10_000 + height)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def rectangle(x0: float, y0: float, x1: float, y1: float) -> Region:
    return Region(points=((x0, y0), (x1, y0), (x1, y1), (x0, y1)))


@pytest.mark.parametrize("size", SIZES)
def test_stretch_is_pillow_bit_for_bit(size: tuple[int, int]) -> None:
    rgb = picture(*size)
    got, placement = prepare(rgb, contract())
    wanted = Image.fromarray(rgb).resize((64, 48), Image.Resampling.BILINEAR)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, np.asarray(wanted))
    assert placement == Placement(*size, 0, 0, 64, 48)


@pytest.mark.parametrize("size", SIZES)
def test_letterbox_is_pillow_bit_for_bit_and_fill_around_it(size: tuple[int, int]) -> None:
    rgb = picture(*size)
    got, at = prepare(rgb, contract("letterbox"))
    inner = Image.fromarray(rgb).resize((at.width, at.height), Image.Resampling.BILINEAR)
    canvas = Image.new("RGB", (64, 48), (7, 100, 250))
    canvas.paste(inner, (at.left, at.top))
    np.testing.assert_array_equal(got, np.asarray(canvas))


def test_letterbox_touches_two_edges_keeps_the_shape_and_is_centred() -> None:
    wide = place(contract("letterbox"), 200, 100)
    assert (wide.left, wide.top, wide.width, wide.height) == (0, 8, 64, 32)
    tall = place(contract("letterbox"), 30, 60)
    assert (tall.left, tall.top, tall.width, tall.height) == (20, 0, 24, 48)
    odd = place(contract("letterbox"), 64, 43)  # 5 rows of fill: the lower edge gets one more
    assert (odd.top, odd.height) == (2, 43)


@given(
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.sampled_from(["stretch", "letterbox"]),
    st.integers(1, 6),
    st.integers(1, 6),
)
@settings(derandomize=True, deadline=None)
def test_a_placement_lies_in_the_input_and_leads_back(
    width: int, height: int, fit: Fit, rows: int, cols: int
) -> None:
    made = contract(fit, rows, cols)
    p = place(made, width, height)
    assert p.width >= 1 and p.height >= 1
    assert p.left >= 0 and p.left + p.width <= made.width
    assert p.top >= 0 and p.top + p.height <= made.height
    if fit == "letterbox":
        assert p.width == made.width or p.height == made.height
        # It is centred, and no side differs from its true length by more than half a pixel.
        assert 0 <= made.width - p.width - 2 * p.left <= 1
        assert 0 <= made.height - p.height - 2 * p.top <= 1
        scale = min(made.width / width, made.height / height)
        assert abs(p.width - max(1, width * scale)) <= 0.5
        assert abs(p.height - max(1, height * scale)) <= 0.5
    # The whole input covers the whole picture, and a point of the picture maps back to itself.
    assert p.to_picture((0, 0, made.width, made.height)) == pytest.approx((0, 0, width, height))
    x, y = 0.25 * width, 0.75 * height
    there = (p.left + x * p.width / width, p.top + y * p.height / height)
    assert p.to_picture((*there, *there)) == pytest.approx((x, y, x, y))
    assert p.area_scale * p.width * p.height == pytest.approx(width * height)


def test_boxes_on_the_fill_are_clipped_to_the_picture() -> None:
    p = place(contract("letterbox"), 200, 100)  # 8 rows of fill above and below
    assert p.to_picture((-5, 0, 32, 8)) == (0, 0, 100, 0)
    assert p.to_picture((32, 24, 99, 48)) == (100, 50, 200, 100)


def test_patches_tile_the_input() -> None:
    made = contract()
    seen = np.zeros((48, 64), int)
    for row in range(3):
        for col in range(4):
            x0, y0, x1, y1 = (int(v) for v in patch_box(made, row, col))
            seen[y0:y1, x0:x1] += 1
            assert (x0 // 16, y0 // 16) == (col, row)
    assert (seen == 1).all()


def test_everything_counts_without_region_mask_or_fill() -> None:
    made = contract()
    scored = inspected_patches(made, place(made, 640, 480))
    assert scored.shape == (3, 4) and scored.all()


def test_a_patch_that_touches_fill_does_not_count() -> None:
    made = contract("letterbox", rows=4, cols=4)
    # With 64 x 32 pixels in the middle, rows 1 and 2 contain no fill.
    assert inspected_patches(made, place(made, 200, 100)).all(axis=1).tolist() == [0, 1, 1, 0]
    # With one pixel less on each side, those rows contain fill too.
    scored = inspected_patches(made, Placement(200, 94, 0, 17, 64, 30))
    assert not scored.any()
    # Fill on the right excludes only the last column.
    scored = inspected_patches(made, Placement(63, 64, 0, 0, 63, 64))
    assert scored.all(axis=0).tolist() == [1, 1, 1, 0]


def test_a_patch_counts_when_more_than_half_of_it_is_in_the_region() -> None:
    made = contract(rows=2, cols=4)  # 64 x 32, patches a quarter of the width
    at = place(made, 640, 320)

    def columns(right: float) -> list[int]:
        scored = inspected_patches(made, at, rectangle(0, 0, right, 1))
        assert (scored[0] == scored[1]).all()
        return [int(c) for c in scored[0]]

    # exactly half of the second patch, which is not more than half
    assert columns(24 / 64) == [1, 0, 0, 0]
    assert columns(25 / 64) == [1, 1, 0, 0]
    assert columns(1.0) == [1, 1, 1, 1]
    assert columns(7 / 64) == [0, 0, 0, 0]


@given(st.lists(st.integers(0, 128), min_size=4, max_size=4), st.integers(1, 8))
@settings(derandomize=True, deadline=None)
def test_a_rectangle_fills_the_pixels_whose_centre_it_holds(quarters: list[int], more: int) -> None:
    """Stride 1 makes a patch of every pixel, and no edge may include a pixel more than another."""
    x0, x1 = sorted(q / 4 for q in quarters[:2])
    y0, y1 = sorted(q / 4 for q in quarters[2:])
    made = contract(rows=32, cols=32, stride=1)
    region = rectangle(x0 / 32, y0 / 32, x1 / 32, y1 / 32)
    centre = np.arange(32) + 0.5
    in_x, in_y = (centre >= x0) & (centre < x1), (centre >= y0) & (centre < y1)
    got = inspected_patches(made, place(made, 32 * more, 320), region)
    np.testing.assert_array_equal(got, in_y[:, None] & in_x)


def test_a_bent_polygon_is_filled_by_its_area() -> None:
    """The polygon is an L on pixel edges, and the notch lies outside."""
    made = contract(rows=32, cols=32, stride=1)
    corners = [(4, 4), (28, 4), (28, 12), (12, 12), (12, 28), (4, 28)]
    region = Region(points=tuple((x / 32, y / 32) for x, y in corners))
    wanted = np.zeros((32, 32), np.bool_)
    wanted[4:12, 4:28] = wanted[4:28, 4:12] = True
    np.testing.assert_array_equal(inspected_patches(made, place(made, 9, 9), region), wanted)


def test_a_polygon_region_cuts_corners() -> None:
    made = contract(rows=8, cols=8)
    triangle = Region(points=((0, 0), (1, 0), (0, 1)))
    scored = inspected_patches(made, place(made, 300, 300), triangle)
    row, col = np.mgrid[:8, :8]
    assert scored[row + col < 7].all()
    assert not scored[row + col > 7].any()


def test_a_region_is_given_in_fractions_of_the_picture_not_of_the_input() -> None:
    made = contract("letterbox", rows=4, cols=4)
    at = place(made, 200, 100)  # the picture covers rows 1 and 2
    scored = inspected_patches(made, at, rectangle(0, 0, 0.5, 0.5))
    assert np.argwhere(scored).tolist() == [[1, 0], [1, 1]]


def test_a_patch_counts_when_less_than_half_of_it_is_masked() -> None:
    made = contract(rows=2, cols=4)
    at = place(made, 64, 32)
    ignore = np.zeros((32, 64), np.bool_)
    ignore[:, :16] = True  # all of column 0
    ignore[:8, 16:32] = True  # half of row 0, column 1
    ignore[:7, 32:48] = True  # less than half of row 0, column 2
    ignore[31, 63] = True  # a pixel of row 1, column 3
    scored = inspected_patches(made, at, None, ignore)
    assert scored.astype(int).tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]]


@pytest.mark.parametrize("size", [(64, 64), (640, 320), (200, 100), (33, 77)])
def test_a_mask_follows_the_picture_into_the_letterbox(size: tuple[int, int]) -> None:
    made = contract("letterbox", rows=8, cols=8, stride=8)
    at = place(made, *size)
    ignore = np.zeros((size[1], size[0]), np.bool_)
    ignore[:, : size[0] // 2] = True
    free = inspected_patches(made, at)
    scored = inspected_patches(made, at, None, ignore)
    assert free.any() and not (scored & ~free).any()
    np.testing.assert_array_equal(scored[:, 5:], free[:, 5:])
    assert not scored[:, :4].any()


def test_region_mask_and_fill_add_up() -> None:
    made = contract("letterbox", rows=4, cols=4)
    at = place(made, 200, 100)
    ignore = np.zeros((100, 200), np.bool_)
    ignore[:50, :50] = True
    scored = inspected_patches(made, at, rectangle(0, 0, 0.5, 1), ignore)
    assert np.argwhere(scored).tolist() == [[1, 1], [2, 0], [2, 1]]
