"""Drawn defects change a place of a good part, the same one for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from anoco_edge.demo.render import render
from anoco_edge.errors import PictureError
from anoco_edge.teaching.synthetic_defects import DEFECTS, synthetic_defects


@pytest.fixture(scope="module")
def part() -> NDArray[np.uint8]:
    return render("washer", 3, size=192).rgb


def test_each_kind_is_drawn_at_each_size_on_a_copy(part: NDArray[np.uint8]) -> None:
    before = part.copy()
    drawn = list(synthetic_defects(part, (0,)))
    assert [(one.kind, one.size) for one in drawn] == list(DEFECTS) and len(DEFECTS) == 9
    assert (part == before).all()
    for one in drawn:
        rows, cols = np.nonzero((one.rgb != part).any(axis=2))
        extent = max(np.ptp(rows), np.ptp(cols)) + 1
        side = one.size * 192
        assert 0.3 * side <= extent <= side + 1, (one.kind, one.size, extent)
        apart = np.abs(one.rgb.astype(int) - part).mean(axis=2)
        assert apart[apart > 0].mean() > 5, (one.kind, one.size)


def test_the_seed_decides_where_and_how(part: NDArray[np.uint8]) -> None:
    def drawn(*seed: int) -> list[bytes]:
        return [one.rgb.tobytes() for one in synthetic_defects(part, seed)]

    assert drawn(1, 2) == drawn(1, 2)
    assert not set(drawn(1, 2)) & set(drawn(1, 3)) and not set(drawn(1, 2)) & set(drawn(2, 2))


def test_defects_lie_inside_the_region_of_interest(part: NDArray[np.uint8]) -> None:
    wanted = np.zeros((32, 32), np.bool_)
    wanted[:8, 24:] = True  # the upper right corner
    for seed in range(5):
        for one in synthetic_defects(part, (seed,), wanted):
            rows, cols = np.nonzero((one.rgb != part).any(axis=2))
            assert rows.mean() < 48 + 16 and cols.mean() > 144 - 16


def test_a_part_is_preferred_to_an_even_background() -> None:
    rng = np.random.default_rng(0)
    rgb = np.full((192, 192, 3), 90, np.uint8)
    rgb[64:128, 64:128] = rng.integers(0, 255, (64, 64, 3))  # a ninth of the picture
    inside = []
    for seed in range(10):
        for one in synthetic_defects(rgb, (seed,)):
            row, col = np.argwhere((one.rgb != rgb).any(axis=2)).mean(axis=0)
            inside.append(64 <= row < 128 and 64 <= col < 128)
    assert np.mean(inside) > 0.3


def test_a_tiny_picture_is_refused() -> None:
    with pytest.raises(PictureError, match="a picture of 40x6 is too small to draw defects on"):
        list(synthetic_defects(np.zeros((6, 40, 3), np.uint8), (0,)))


def test_a_picture_without_any_structure_is_drawn_on_too() -> None:
    blank = np.full((64, 64, 3), 128, np.uint8)
    drawn = list(synthetic_defects(blank, (0,)))
    assert all((one.rgb != blank).any() for one in drawn if one.kind != "cut-paste")
