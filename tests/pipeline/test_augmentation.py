"""Views are exact where they can be, and agree with slow independent code elsewhere.

A picture whose energies are known everywhere comes back unchanged from each of the 25 views.
"""

from __future__ import annotations

import hashlib
import math
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anoco_edge.bundle.schema import Affine, Region
from anoco_edge.errors import ScoringError
from anoco_edge.images.contract import Fit, InputContract
from anoco_edge.images.preprocess import Mask, place
from anoco_edge.pipeline.anomaly_map import Map
from anoco_edge.pipeline.augmentation import (
    IDENTITY,
    OWN,
    PAIRED,
    average,
    box_in_source,
    draw_view,
    entropy_weight,
    own_views,
    paired_views,
    visible_patches,
    warp,
    warp_back,
)
from anoco_edge.pipeline.patch_mask import inspected_patches

Floats = NDArray[np.float64]
WIDTH, HEIGHT, STRIDE = 64, 48, 8
FILL = (7, 100, 250)
WAVE, FINE = 160, 4  # wavelengths of the smooth scene
# Each entry is a view and what it does to an array.
FLIPS: list[tuple[Affine, tuple[slice, slice]]] = [
    (IDENTITY, np.s_[:, :]),
    ((-1, 0, WIDTH, 0, 1, 0), np.s_[:, ::-1]),
    ((1, 0, 0, 0, -1, HEIGHT), np.s_[::-1, :]),
    ((-1, 0, WIDTH, 0, -1, HEIGHT), np.s_[::-1, ::-1]),
]
VIEWS = paired_views(0, WIDTH, HEIGHT)
every_flip = pytest.mark.parametrize(("view", "flipped"), FLIPS)
every_view = pytest.mark.parametrize("view", VIEWS)


def contract(fit: Fit = "stretch", stride: int = STRIDE) -> InputContract:
    rows, cols = HEIGHT // stride, WIDTH // stride
    return InputContract(
        width=WIDTH, height=HEIGHT, fit=fit, stride=stride, rows=rows, cols=cols, dim=8
    )


def picture(seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)


def grid(seed: int = 0) -> tuple[Map, Mask]:
    """Draw energies, of which three quarters are scored; the others are NaN."""
    rng = np.random.default_rng(seed)
    shape = (HEIGHT // STRIDE, WIDTH // STRIDE)
    scored = rng.random(shape) < 0.75
    return np.where(scored, rng.exponential(size=shape), np.nan).astype(np.float32), scored


def apply(view: Affine, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    a, b, c, d, e, f = view
    return a * x + b * y + c, d * x + e * y + f


def forward(view: Affine, x: float, y: float) -> tuple[float, float]:
    """Return where a point of the source is in the view."""
    a, b, c, d, e, f = view
    u, v = np.linalg.solve([[a, b], [d, e]], [x - c, y - f])
    return float(u), float(v)


def slow_warp(values: Floats, view: Affine, fill: float) -> Floats:
    """Interpolate between pixel centres, with repeated edges and `fill` beyond them."""
    height, width = values.shape
    x, y = apply(view, *np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5))
    left, top = np.floor(x - 0.5).astype(int), np.floor(y - 0.5).astype(int)
    out = np.zeros(values.shape)
    for row, down in ((top, top + 1.5 - y), (top + 1, y - 0.5 - top)):
        for col, across in ((left, left + 1.5 - x), (left + 1, x - 0.5 - left)):
            out += down * across * values[row.clip(0, height - 1), col.clip(0, width - 1)]
    out[(x < 0) | (x >= width) | (y < 0) | (y >= height)] = fill
    return out


# How views are drawn


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=8, max_size=8))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_a_view_undoes_what_was_drawn(numbers: list[float]) -> None:
    drawn = SimpleNamespace(random=lambda count: np.array(numbers[:count]))
    view = draw_view(cast(np.random.Generator, drawn), 300, 200)
    flip_x, flip_y, turn, right, down, scale, shear_x, shear_y = numbers
    angle = -15 + 20 * turn if turn < 0.5 else -5 + 20 * turn  # [-15, -5] and [5, 15]
    for x, y in [(-150.0, -100.0), (0.0, 0.0), (150.0, -100.0), (31.0, 77.0)]:
        u, v = (-x if flip_x < 0.5 else x), (-y if flip_y < 0.5 else y)
        u += v * math.tan(math.radians(-5 + 10 * shear_x))
        v += u * math.tan(math.radians(-5 + 10 * shear_y))
        turned = complex(u, v) * np.exp(1j * math.radians(angle)) * (0.95 + 0.1 * scale)
        at = turned + complex(300 * (0.02 * (2 * right - 1)), 200 * (0.02 * (2 * down - 1)))
        source = apply(view, np.array(at.real + 150), np.array(at.imag + 100))
        np.testing.assert_allclose(source, (x + 150, y + 100), atol=1e-9)


def test_views_follow_from_the_seed() -> None:
    views = paired_views(3, WIDTH, HEIGHT)
    assert views == paired_views(3, WIDTH, HEIGHT)
    assert len({*views, *paired_views(4, WIDTH, HEIGHT), IDENTITY}) == 2 * PAIRED + 1
    assert all(type(number) is float for view in views for number in view)


def test_the_own_views_of_a_reference_follow_from_its_digest() -> None:
    one, other = (hashlib.sha256(name).hexdigest() for name in (b"one", b"other"))
    views = own_views(3, one, WIDTH, HEIGHT)
    assert views == own_views(3, one, WIDTH, HEIGHT)
    others = own_views(3, other, WIDTH, HEIGHT) + own_views(4, one, WIDTH, HEIGHT)
    assert len({*views, *others, *paired_views(3, WIDTH, HEIGHT)}) == 3 * OWN + PAIRED


def test_a_bank_of_today_can_be_rebuilt_tomorrow() -> None:
    digest = hashlib.sha256(b"a good part").hexdigest()
    paired, own = paired_views(0, 768, 768), own_views(0, digest, 768, 768)
    assert paired[0][0] == pytest.approx(0.9274124961814495, rel=1e-12)
    assert paired[24][2] == pytest.approx(-49.960149160185395, rel=1e-12)
    assert own[4][5] == pytest.approx(-55.367479756771466, rel=1e-12)


# Pixels


@every_flip
def test_the_identity_and_flips_keep_every_bit(view: Affine, flipped: tuple[slice, slice]) -> None:
    got = warp(picture(), view, FILL)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, picture()[flipped])


@every_view
def test_other_views_are_bilinear_between_pixel_centres(view: Affine) -> None:
    got = warp(picture(), view, FILL)
    for channel, fill in enumerate(FILL):
        wanted = slow_warp(picture()[..., channel].astype(np.float64), view, fill)
        lost = wanted - got[..., channel]  # Pillow truncates the decimals
        assert lost.min() > -1e-6 and lost.max() < 1 + 1e-6


# Which patches count


@pytest.mark.parametrize("fit", ["stretch", "letterbox"])
@pytest.mark.parametrize("size", [(64, 48), (100, 30), (30, 60)])
def test_the_identity_sees_what_is_inspected(fit: Fit, size: tuple[int, int]) -> None:
    made, pixels = contract(fit), contract(fit, stride=1)
    at = place(made, *size)
    region = Region(points=((0.1, 0.05), (0.95, 0.2), (0.6, 0.97)))
    ignore = np.random.default_rng(1).random(size[::-1]) < 0.2
    inside = inspected_patches(pixels, at)
    wanted = inspected_patches(pixels, at, region, ignore)
    direct = inspected_patches(made, at, region, ignore)
    assert direct.any() and not direct.all()
    for view, flipped in FLIPS:
        np.testing.assert_array_equal(visible_patches(made, view, inside, wanted), direct[flipped])


@every_view
def test_a_patch_counts_where_nothing_but_picture_reaches_it(view: Affine) -> None:
    """The picture is 255 and the rest 0; a patch is scored if all its pixels are 255."""
    inside = np.zeros((HEIGHT, WIDTH), np.bool_)
    inside[5:, 3:61] = True
    canvas = np.where(inside, np.uint8(255), np.uint8(0))[..., None].repeat(3, axis=2)
    seen = visible_patches(contract(), view, inside, inside)
    warped = warp(canvas, view, (0, 0, 0)).reshape(6, STRIDE, 8, STRIDE, 3)
    np.testing.assert_array_equal(seen, (warped == 255).all(axis=(1, 3, 4)))
    slow = slow_warp(inside.astype(np.float64), view, 0).reshape(6, STRIDE, 8, STRIDE)
    np.testing.assert_array_equal(seen, slow.min(axis=(1, 3)) > 1 - 1e-9)
    assert seen[2:4, 3:5].all() and not seen.all()


@every_view
def test_a_patch_counts_where_more_than_half_of_it_is_wanted(view: Affine) -> None:
    everything = np.ones((HEIGHT, WIDTH), np.bool_)
    wanted = np.zeros((HEIGHT, WIDTH), np.bool_)
    wanted[12:40, 20:50] = True
    whole = visible_patches(contract(), view, everything, everything)
    share = slow_warp(wanted.astype(np.float64), view, 0).reshape(6, STRIDE, 8, STRIDE)
    seen = visible_patches(contract(), view, everything, wanted)
    np.testing.assert_array_equal(seen, whole & (share.mean(axis=(1, 3)) > 0.5))
    assert 0 < seen.sum() < whole.sum()


# Back in the source


def test_boxes_in_the_source() -> None:
    assert box_in_source(IDENTITY, (8, 16, 24, 32)) == (8, 16, 24, 32)
    assert box_in_source((-1, 0, WIDTH, 0, 1, 0), (8, 16, 24, 32)) == (40, 16, 56, 32)
    quarter_turn: Affine = (0, -1, 48, 1, 0, 2)
    assert box_in_source(quarter_turn, (8, 16, 24, 40)) == (8, 10, 32, 26)
    sheared: Affine = (1, 0.5, 0, 0, 1, 0)
    assert box_in_source(sheared, (8, 16, 24, 40)) == (16, 16, 44, 40)


@every_flip
def test_the_identity_and_flips_bring_every_energy_back(
    view: Affine, flipped: tuple[slice, slice]
) -> None:
    energy, scored = grid()
    back, seen = warp_back(contract(), view, energy, scored)
    assert back.dtype == np.float32
    np.testing.assert_array_equal(seen, scored[flipped])
    np.testing.assert_array_equal(back, np.where(seen, energy[flipped], 0))


@every_view
def test_warping_back_is_bilinear_between_the_patches_that_count(view: Affine) -> None:
    energy, scored = grid()
    back, seen = warp_back(contract(), view, energy, scored)
    patches = [(row, col) for row, col in np.argwhere(scored).tolist()]
    for row, col in np.ndindex(*scored.shape):
        x, y = forward(view, (col + 0.5) * STRIDE, (row + 0.5) * STRIDE)
        assert seen[row, col] == ((y // STRIDE, x // STRIDE) in patches)
        if not seen[row, col]:
            assert back[row, col] == 0
            continue
        tents = {
            (r, c): max(0, 1 - abs(y / STRIDE - 0.5 - r)) * max(0, 1 - abs(x / STRIDE - 0.5 - c))
            for r, c in patches
        }
        wanted = sum(w * energy[at] for at, w in tents.items() if w) / sum(tents.values())
        assert back[row, col] == pytest.approx(wanted, rel=1e-5)


def test_neither_unseen_patches_nor_what_lies_beyond_have_a_value() -> None:
    energy, scored = np.ones((6, 8), np.float32), np.ones((6, 8), np.bool_)
    back, seen = warp_back(contract(), (1, 0, 3 * STRIDE, 0, 1, -2 * STRIDE), energy, scored)
    assert np.argwhere(seen).min(axis=0).tolist() == [0, 3]
    assert np.argwhere(seen).max(axis=0).tolist() == [3, 7]
    np.testing.assert_array_equal(back, seen.astype(np.float32))
    _, seen = warp_back(contract(), (1, 0, 1000, 0, 1, 1000), energy, scored)
    assert not seen.any()


# What the views say together


@pytest.mark.parametrize(
    ("energy", "entropy"),
    [
        ([3, 3, 3], 1),
        ([0, 0, 0, 2], 0),
        ([5, 0, 5, 0], 0.5),
        ([0.9, 0.1], -(0.9 * math.log(0.9) + 0.1 * math.log(0.1)) / math.log(2)),
        ([0, 0], 1),  # no energy anywhere: uniform
        ([7], 1),  # a single patch has no position
        ([], 1),
        ([1e-30, 1e30], 0),
    ],
)
def test_the_more_level_the_energies_the_less_a_view_weighs(
    energy: list[float], entropy: float
) -> None:
    for scale in (1, 1e-3, 1e3):
        weight = entropy_weight(scale * np.array(energy, np.float32))
        assert weight == pytest.approx(math.exp(-entropy / 0.1), rel=1e-5)


def flat_and_peak() -> tuple[Map, Map, Mask]:
    flat, peak = np.full((6, 8), 2, np.float32), np.zeros((6, 8), np.float32)
    peak[1, 2] = 9
    return flat, peak, np.ones((6, 8), np.bool_)


def test_a_view_that_points_at_something_outvotes_a_level_one() -> None:
    flat, peak, scored = flat_and_peak()
    got = average(
        contract(), [(IDENTITY, flat, scored), ((-1, 0, WIDTH, 0, 1, 0), peak, scored)], scored
    )
    assert got.dtype == np.float32
    assert got[1, 5] == pytest.approx((9 + 2 * math.exp(-10)) / (1 + math.exp(-10)))
    assert got[1, 2] == pytest.approx(2 * math.exp(-10) / (1 + math.exp(-10)))


def test_views_that_do_not_see_a_patch_have_no_say_there() -> None:
    flat, peak, scored = flat_and_peak()
    beyond: Affine = (1, 0, 4 * STRIDE, 0, 1, 0)  # shows only the right half
    got = average(contract(), [(IDENTITY, flat, scored), (beyond, peak, scored)], scored)
    np.testing.assert_array_equal(got[:, :4], 2)
    assert got[1, 6] > 8.9 and got[2:, 4:].max() < 1e-3


def test_each_patch_is_the_weighted_mean_of_the_views_that_see_it() -> None:
    energy, scored = grid(0)
    views = [(IDENTITY, energy, scored), *((v, *grid(i)) for i, v in enumerate(VIEWS, 1))]
    got = average(contract(), views, scored)
    trust = np.array([entropy_weight(energy[valid]) for _, energy, valid in views])
    backs, seen = map(np.array, zip(*(warp_back(contract(), *v) for v in views), strict=True))
    assert len(set(trust)) == len(views) and not seen.all()
    for row, col in np.argwhere(scored).tolist():
        sees = seen[:, row, col]
        wanted = np.average(backs[sees, row, col], weights=trust[sees])
        assert got[row, col] == pytest.approx(wanted, rel=1e-5)


@given(st.integers(0, 10_000), st.integers(0, PAIRED), st.sampled_from([1e-30, 1.0, 1e30]))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_an_average_lies_between_its_views(seed: int, count: int, scale: float) -> None:
    first, scored = grid(seed)
    views = [(IDENTITY, first, scored)]
    views += [(v, *grid(seed + i)) for i, v in enumerate(VIEWS[:count], 1)]
    views = [(view, energy * np.float32(scale), valid) for view, energy, valid in views]
    got = average(contract(), views, scored)
    backs = [warp_back(contract(), *view) for view in views]
    low = np.min([np.where(seen, back, np.inf) for back, seen in backs], axis=0)
    high = np.max([np.where(seen, back, -np.inf) for back, seen in backs], axis=0)
    assert (low[scored] <= got[scored]).all() and (got[scored] <= high[scored]).all()
    assert not got[~scored].any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_what_is_no_energy_never_becomes_a_score(bad: float) -> None:
    flat, peak, scored = flat_and_peak()
    peak[3, 3] = bad
    with pytest.raises(ScoringError, match="NaN, infinity or negative"):
        average(contract(), [(IDENTITY, flat, scored), (VIEWS[0], peak, scored)], scored)
    with pytest.raises(ScoringError):
        warp_back(contract(), VIEWS[0], peak, scored)
    with pytest.raises(ScoringError):
        entropy_weight(peak)


def test_a_patch_that_no_view_sees_is_an_error_not_a_zero() -> None:
    flat, _, scored = flat_and_peak()
    beyond: Affine = (1, 0, 4 * STRIDE, 0, 1, 0)
    with pytest.raises(ScoringError, match="24 patches are seen by no view; the first view"):
        average(contract(), [(beyond, flat, scored)], scored)


# From pixels and back, with an engine whose energy of a patch is its mean brightness.


def scene(width: int, height: int) -> NDArray[np.uint8]:
    """Draw three waves, none much shorter than WAVE pixels, that together span 0 to 255."""
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    values = np.zeros(x.shape)
    for a, b, phase in [(1.0, 0.2, 0.3), (-0.3, 0.9, 1.1), (0.5, 0.6, 2.5)]:
        values += np.sin(2 * np.pi / WAVE * (a * x + b * y) + phase)
    grey = np.interp(values, (values.min(), values.max()), (0, 255)).round().astype(np.uint8)
    return np.stack([grey] * 3, axis=2)


def engine(pixels: NDArray[np.uint8], stride: int) -> Map:
    height, width = pixels.shape[:2]
    blocks = pixels[..., 0].reshape(height // stride, stride, width // stride, stride)
    means: Map = blocks.mean(axis=(1, 3)).astype(np.float32)
    return means


def test_every_paired_view_brings_the_energies_of_a_smooth_scene_back() -> None:
    """Every view gives back the energies of a smooth scene, within the error of interpolation.

    Bilinear interpolation at step h misses by at most h^2 f'' / 8 per axis, here 0.25 of 255
    levels. Pillow truncates decimals, which costs half a level on average. The slope is 5 levels
    per pixel, so an offset of half a pixel would show.
    """
    made = InputContract(width=160, height=128, stride=FINE, rows=32, cols=40, dim=8)
    pixels, everything = scene(160, 128), np.ones((128, 160), np.bool_)
    direct = engine(pixels, FINE)
    for view in paired_views(0, 160, 128):
        energy = engine(warp(pixels, view, FILL), FINE)
        scored = visible_patches(made, view, everything, everything)
        back, seen = warp_back(made, view, energy, scored)
        # Next to patches that are not scored, values are repeated and not interpolated.
        ring = np.pad(scored, 1)
        around = np.all([ring[i : i + 32, j : j + 40] for i in range(3) for j in range(3)], axis=0)
        _, inner = warp_back(made, view, energy, around)
        assert inner.sum() > 0.6 * inner.size and (seen | ~inner).all()
        off = np.abs(back - direct)
        assert off[inner].max() < 1.5
        # Repeating them costs half a patch each way, at 5 levels per pixel.
        assert off[seen].max() < 5 * FINE / 2 * math.sqrt(2)


@pytest.mark.parametrize("view", [view for view, _ in FLIPS])
def test_a_flipped_picture_gives_the_very_same_energies(view: Affine) -> None:
    everything = np.ones((HEIGHT, WIDTH), np.bool_)
    scored = visible_patches(contract(), view, everything, everything)
    assert scored.all()
    energy = engine(warp(picture(), view, FILL), STRIDE)
    back, seen = warp_back(contract(), view, energy, scored)
    assert seen.all()
    np.testing.assert_array_equal(back, engine(picture(), STRIDE))
