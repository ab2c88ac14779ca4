"""The anomaly map equals a slow, independent one, and regions appear when and where they should."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.images.contract import InputContract
from anoco_edge.images.preprocess import Placement, place
from anoco_edge.pipeline.anomaly_map import MapMaker, axis_matrix, enlarge
from anoco_edge.pipeline.energy import PictureEnergy
from anoco_edge.pipeline.postprocess import PostProcessor
from anoco_edge.pipeline.regions import GROW, FoundRegion, find_regions
from anoco_edge.scoring.pooling import pool, smooth_grid

Grid = NDArray[np.float32]
SHAPES = [(4, 6, 16), (9, 9, 16), (5, 3, 14), (1, 7, 8), (1, 1, 4), (6, 2, 1), (3, 1, 2), (2, 2, 1)]


def contract(rows: int, cols: int, stride: int) -> InputContract:
    return InputContract(
        width=cols * stride, height=rows * stride, stride=stride, rows=rows, cols=cols, dim=8
    )


def grid(rows: int, cols: int, seed: int = 0) -> Grid:
    energies = np.random.default_rng(seed).exponential(size=(rows, cols))
    return energies.astype(np.float32)


def slow_bilinear(values: Grid, height: int, width: int) -> NDArray[np.float64]:
    """Interpolate one pixel at a time, with half-pixel centres and clamped edges."""
    rows, cols = values.shape
    out = np.zeros((height, width))
    for y in range(height):
        for x in range(width):
            v = min(max((y + 0.5) * rows / height - 0.5, 0), rows - 1)
            u = min(max((x + 0.5) * cols / width - 0.5, 0), cols - 1)
            top, left = int(v), int(u)
            for i, share_i in ((top, 1 - (v - top)), (top + 1, v - top)):
                for j, share_j in ((left, 1 - (u - left)), (left + 1, u - left)):
                    if share_i * share_j > 0:
                        out[y, x] += share_i * share_j * values[i, j]
    return out


def slow_gaussian(values: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.ndimage import correlate1d  # type: ignore[import-untyped]

    taps = np.array([math.exp(-(k**2) / (2 * 0.8**2)) for k in range(-3, 4)])
    taps /= taps.sum()
    for axis in (0, 1):
        values = correlate1d(values, taps, axis=axis, mode="mirror")
    return values


@pytest.mark.parametrize(("rows", "cols", "stride"), SHAPES)
def test_the_map_is_bilinear_then_gaussian(rows: int, cols: int, stride: int) -> None:
    energy = grid(rows, cols)
    got = MapMaker(contract(rows, cols, stride))(energy, np.ones((rows, cols), np.bool_))
    wanted = slow_gaussian(slow_bilinear(energy, rows * stride, cols * stride))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rows", "cols", "stride"), [(4, 6, 16), (5, 3, 14), (1, 7, 8)])
def test_the_interpolation_is_what_torch_calls_align_corners_false(
    rows: int, cols: int, stride: int
) -> None:
    import torch

    energy = grid(rows, cols)
    tensor = torch.from_numpy(energy.astype(np.float64))[None, None]
    size = (rows * stride, cols * stride)
    larger = torch.nn.functional.interpolate(
        tensor, size=size, mode="bilinear", align_corners=False
    )
    got = MapMaker(contract(rows, cols, stride))(energy, np.ones((rows, cols), np.bool_))
    np.testing.assert_allclose(got, slow_gaussian(larger[0, 0].numpy()), rtol=1e-5, atol=1e-6)


def test_axis_matrices_average() -> None:
    for patches, pixels in [(1, 1), (1, 16), (2, 2), (3, 42), (48, 768)]:
        matrix = axis_matrix(patches, pixels)
        assert matrix.shape == (pixels, patches)
        assert (matrix >= 0).all()
        np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-6)


def test_patches_that_do_not_count_have_no_say_and_no_map() -> None:
    made = contract(6, 5, 8)
    scored = np.random.default_rng(3).random((6, 5)) < 0.6
    energy = grid(6, 5)
    noisy = np.where(scored, energy, np.float32(1e6))
    got = MapMaker(made)(noisy, scored)
    pixels = np.repeat(np.repeat(scored, 8, axis=0), 8, axis=1)
    weight = slow_gaussian(slow_bilinear(scored.astype(np.float32), 48, 40))
    raised = slow_gaussian(slow_bilinear(np.where(scored, energy, np.float32(0)), 48, 40))
    np.testing.assert_allclose(got[pixels], raised[pixels] / weight[pixels], rtol=1e-4)
    assert (got[~pixels] == 0).all()
    # Patches that are not inspected may hold anything, even NaN.
    unknown = np.where(scored, energy, np.float32(np.nan))
    np.testing.assert_array_equal(MapMaker(made)(unknown, scored), got)


def test_a_level_surface_stays_level_up_to_the_edge_of_the_region() -> None:
    scored = np.zeros((5, 5), np.bool_)
    scored[1:4, 2:] = True
    got = MapMaker(contract(5, 5, 16))(np.full((5, 5), 3, np.float32), scored)
    np.testing.assert_allclose(got[16:64, 32:], 3, rtol=1e-5)
    assert got.sum() == got[16:64, 32:].sum()


def test_where_nothing_counts_the_map_is_empty() -> None:
    got = MapMaker(contract(2, 2, 4))(grid(2, 2), np.zeros((2, 2), np.bool_))
    assert got.shape == (8, 8) and not got.any()


def test_enlarge_cuts_off_the_letterbox() -> None:
    made = InputContract(width=64, height=64, fit="letterbox", stride=16, rows=4, cols=4, dim=8)
    at = place(made, 200, 100)
    values = grid(64, 64)
    values[:16] = values[48:] = 1e6  # on the fill
    got = enlarge(values, at)
    wanted = Image.fromarray(values[16:48]).resize((200, 100), Image.Resampling.BILINEAR)
    assert got.dtype == np.float32 and got.shape == (100, 200)
    np.testing.assert_array_equal(got, np.asarray(wanted))


def found(
    energy: Grid, threshold: float, stride: int = 16, scale: int = 1, min_area: float = 0.0
) -> tuple[list[FoundRegion], NDArray[np.bool_]]:
    """Return the regions in a picture `scale` times as large as the model's input."""
    rows, cols = energy.shape
    made = contract(rows, cols, stride)
    at = place(made, made.width * scale, made.height * scale)
    input_map = MapMaker(made)(energy, np.ones_like(energy, np.bool_))
    return find_regions(energy, input_map, threshold, made, at, min_area)


def blobs(*places: tuple[int, int, float]) -> Grid:
    energy = np.zeros((8, 10), np.float32)
    for row, col, value in places:
        energy[row, col] = value
    return energy


def test_two_blobs_are_two_regions_strongest_first() -> None:
    regions, outline = found(blobs((1, 1, 2), (1, 2, 3), (6, 8, 5)), threshold=1)
    assert [(r.row, r.col, r.peak) for r in regions] == [(6, 8, 5), (1, 2, 3)]
    weak = regions[1].box
    assert 16 <= weak[0] < weak[2] <= 48 and 16 <= weak[1] < weak[3] <= 32
    assert outline.sum() == pytest.approx(sum(r.area for r in regions))
    assert outline[6 * 16 + 8, 8 * 16 + 8] and not outline[:, :16].any()


def test_corners_hang_together() -> None:
    assert len(found(blobs((2, 2, 2), (3, 3, 2)), threshold=1)[0]) == 1
    assert len(found(blobs((2, 2, 2), (4, 2, 2)), threshold=1)[0]) == 2


def test_a_region_grows_over_what_is_half_as_high_but_does_not_start_there() -> None:
    above, below = GROW * 1.01, GROW * 0.99
    bridge = blobs((2, 2, 2), (2, 3, above), (2, 4, 2))
    assert [r.peak for r in found(bridge, threshold=1)[0]] == [2]
    gap = blobs((2, 2, 2), (2, 3, below), (2, 4, 2))
    assert len(found(gap, threshold=1)[0]) == 2
    assert found(blobs((2, 2, above)), threshold=1)[0] == []


def test_a_region_is_where_the_map_is_high() -> None:
    energy = blobs((2, 2, 10), (2, 3, 10), (3, 2, 1.2))
    regions, outline = found(energy, threshold=2)
    made = contract(8, 10, 16)
    input_map = MapMaker(made)(energy, np.ones((8, 10), np.bool_))
    patches = np.kron(energy > 1, np.ones((16, 16), np.bool_))
    np.testing.assert_array_equal(outline, patches & (input_map > 1))
    ys, xs = np.nonzero(outline)
    assert regions[0].box == (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
    assert regions[0].area == outline.sum()


def test_a_patch_that_smoothing_hides_is_outlined_whole() -> None:
    """At stride 1 the Gaussian leaves a quarter of a single patch; its weak neighbour stays out."""
    regions, outline = found(blobs((4, 5, 1.5), (4, 6, 0.55)), threshold=1, stride=1)
    assert np.argwhere(outline).tolist() == [[4, 5]]
    assert regions[0].box == (5, 4, 6, 5) and regions[0].area == 1


def test_areas_and_boxes_are_in_pixels_of_the_picture() -> None:
    energy = blobs((1, 1, 2), (6, 8, 5))
    small, large = found(energy, 1)[0], found(energy, 1, scale=3)[0]
    for one, three in zip(small, large, strict=True):
        assert three.area == pytest.approx(9 * one.area)
        assert three.box == pytest.approx([3 * v for v in one.box])


def test_smaller_regions_than_asked_for_are_left_out() -> None:
    energy = blobs((1, 1, 2), (6, 7, 5), (6, 8, 5))
    (large, small), everything = found(energy, 1)
    assert small.area < large.area
    regions, outline = found(energy, 1, min_area=small.area + 0.5)
    assert regions == [large]
    assert outline.sum() == large.area < everything.sum()
    # The limit itself is large enough.
    assert found(energy, 1, min_area=small.area)[0] == [large, small]
    assert found(energy, 1, min_area=1e9)[0] == []


@st.composite
def energies(draw: st.DrawFn) -> Grid:
    rows, cols = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    values = st.floats(0, 4, width=32) | st.sampled_from([0.0, 0.5, 1.0])
    cells = draw(st.lists(values, min_size=rows * cols, max_size=rows * cols))
    return np.array(cells, np.float32).reshape(rows, cols)


@given(energies(), st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([1, 2, 16]), st.integers(1, 3))
@settings(derandomize=True, deadline=None)
def test_an_anomalous_picture_has_a_region_and_a_good_one_has_none(
    energy: Grid, threshold: float, stride: int, scale: int
) -> None:
    regions, outline = found(energy, threshold, stride, scale)
    assert bool(regions) == bool(energy.max() > threshold) == bool(outline.any())
    assume(regions)
    assert regions[0].peak == energy.max()
    height, width = scale * energy.shape[0] * stride, scale * energy.shape[1] * stride
    owners = {(r.row, r.col) for r in regions}
    assert len(owners) == len(regions)
    for region in regions:
        x0, y0, x1, y1 = region.box
        assert 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height
        assert 0 < region.area <= (x1 - x0) * (y1 - y0) + 1e-6
        assert region.peak == energy[region.row, region.col] > threshold
    assert sum(r.area for r in regions) == pytest.approx(outline.sum() * scale**2)


@given(energies(), st.integers(0, 2**32 - 1), st.sampled_from([0.2, 0.5, 1.0, 3.0]))
@settings(derandomize=True, deadline=None)
def test_with_smooth_pooling_an_anomalous_picture_has_a_region(
    energy: Grid, seed: int, threshold: float
) -> None:
    scored = np.random.default_rng(seed).random(energy.shape) < 0.7
    assume(scored.any())
    energy[~scored] = 0
    made = contract(*energy.shape, 16)
    at = place(made, made.width, made.height)
    score = pool(energy, "smooth", scored)
    picture = PictureEnergy(at, scored, energy, np.array(0), energy, score, {})
    output = PostProcessor(made, threshold, 0.0, "smooth").process(picture)
    assert bool(output.regions) == (score > threshold)
    assume(output.regions)
    assert output.regions[0].peak == score
    assert all(scored[r.row, r.col] and r.peak > threshold for r in output.regions)
    just_under = PostProcessor(made, np.nextafter(score, 0), 0.0, "smooth").process(picture)
    assert len(just_under.regions) >= 1


def test_with_smooth_pooling_evidence_is_that_of_the_hottest_patch() -> None:
    """Between two hot patches the smoothed grid is highest, where the energy itself is low."""
    energy = blobs((4, 3, 6), (4, 5, 5))
    smoothed = smooth_grid(energy, np.ones_like(energy, np.bool_))
    assert np.unravel_index(np.argmax(smoothed), smoothed.shape) == (4, 3)
    energy[4, 4] = 2
    smoothed = smooth_grid(energy, np.ones_like(energy, np.bool_))
    assert np.unravel_index(np.argmax(smoothed), smoothed.shape) == (4, 4)
    made = contract(8, 10, 16)
    input_map = MapMaker(made)(energy, np.ones_like(energy, np.bool_))
    at = place(made, made.width, made.height)
    ((region,), _) = find_regions(energy, input_map, 1.0, made, at, 0.0, smoothed)
    assert (region.row, region.col) == (4, 3) and region.peak == smoothed[4, 4] < energy[4, 3]


def test_boxes_in_a_letterbox_lie_in_the_picture() -> None:
    made = InputContract(width=64, height=64, fit="letterbox", stride=16, rows=4, cols=4, dim=8)
    at = place(made, 200, 100)
    assert at == Placement(200, 100, 0, 16, 64, 32)
    energy = np.zeros((4, 4), np.float32)
    energy[1, 3] = 5
    scored = np.zeros((4, 4), np.bool_)
    scored[1:3] = True
    regions, _ = find_regions(energy, MapMaker(made)(energy, scored), 1, made, at)
    x0, y0, x1, y1 = regions[0].box
    assert 150 <= x0 < x1 <= 200 and 0 <= y0 < y1 <= 50
