"""Thinning a bank equals the literal farthest-point choice, repeatably and in limited memory."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.teaching import coreset
from anoco_edge.teaching.coreset import DIMS, MOST_REPORTS, CoresetSelection, thin

Features = NDArray[np.float32]


def patches(count: int, dim: int, seed: int = 0) -> Features:
    """Draw a dense cloud and a few sparse ones, like a background and the edges of a part."""
    rng = np.random.default_rng(seed)
    cloud = rng.integers(0, 4, count)
    centres = rng.normal(0, 2, (4, dim))
    spread = np.array([0.1, 0.5, 1, 2])[cloud, None]
    return (centres[cloud] + spread * rng.normal(size=(count, dim))).astype(np.float32)


def squared_distances(features: NDArray[Any]) -> NDArray[np.float64]:
    wide = features.astype(np.float64)
    differences = wide[:, None] - wide[None]
    result: NDArray[np.float64] = (differences**2).sum(axis=2)
    return result


def literal(features: NDArray[Any], count: int, first: int) -> tuple[list[int], float]:
    """Choose the farthest point step by step; return the order and the radius."""
    same: dict[bytes, int] = {}
    for row, values in enumerate(features):
        same.setdefault(values.tobytes(), row)
    left = list(same.values())
    squared = squared_distances(features)
    chosen: list[int] = []
    while left:
        nearest = {row: min((squared[row, c] for c in chosen), default=np.inf) for row in left}
        if len(chosen) >= count:
            return chosen, float(np.sqrt(max(nearest.values())))
        far = max(left, key=lambda row: (nearest[row], -row)) if chosen else first
        chosen.append(far)
        left.remove(far)
    return chosen, 0.0


def left_out(features: NDArray[Any], chosen: CoresetSelection) -> NDArray[np.float64]:
    """Return the distance of every patch to the nearest chosen one."""
    result: NDArray[np.float64] = np.sqrt(squared_distances(features)[:, chosen.rows].min(axis=1))
    return result


# Small integers give many duplicates and ties, and distances without rounding.
WHOLE = st.tuples(st.integers(1, 24), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.integers(-3, 3).map(float))
)


@given(WHOLE, st.integers(1, 26), st.integers(0, 3))
@settings(max_examples=100, derandomize=True, deadline=None)
def test_the_choice_is_the_literal_one(features: Features, count: int, seed: int) -> None:
    first = int(thin(features, 1, seed).rows[0])
    got = thin(features, count, seed)
    rows, radius = literal(features, count, first)
    assert got.rows.tolist() == sorted(rows)
    assert got.radius == pytest.approx(radius, rel=1e-12)
    assert got.duplicates == len(features) - len(np.unique(features + 0.0, axis=0))


@pytest.mark.parametrize("whole", [True, False])
def test_rounds_and_blocks_do_not_change_the_choice(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = patches(400, 6)
    if whole:
        features = np.round(features * 2)  # every second distance is a tie
    wanted = thin(features, 60)
    if whole:
        rows, radius = literal(features, 60, int(thin(features, 1).rows[0]))
        assert wanted.rows.tolist() == sorted(rows) and wanted.radius == pytest.approx(radius)
    for block, centres, active in [(7, 3, 1), (64, 1, 10), (1, 100, 400)]:
        monkeypatch.setattr(coreset, "BLOCK", block)
        monkeypatch.setattr(coreset, "CENTERS", centres)
        monkeypatch.setattr(coreset, "ACTIVE", active)
        got = thin(features, 60)
        assert got.rows.tolist() == wanted.rows.tolist() and got.radius == wanted.radius


@pytest.mark.parametrize("active", [1, 2, 5, 30])
def test_ties_are_broken_alike_within_a_round_and_across(
    active: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coreset, "ACTIVE", active)
    grid = np.argwhere(np.ones((7, 6))).astype(np.int16)
    for seed in range(8):
        points = np.random.default_rng(seed).permutation(grid)
        order, squared = coreset._farthest(points, seed, 40, lambda done, total: None)
        rows, radius = literal(points, 40, seed)
        assert order.tolist() == rows and np.sqrt(squared) == radius


def test_the_two_ends_of_the_range_stay_apart() -> None:
    end = np.nextafter(np.float32(1), np.float32(0))  # rounds up to the next power of two
    assert thin(np.array([[-end], [end]]), 1).radius == pytest.approx(2)


def test_duplicates_are_merged_into_the_first() -> None:
    features = patches(30, 5)
    features[[7, 20, 29]] = features[3]
    features[8] = features[1]
    got = thin(features, 100)
    assert got.rows.tolist() == [r for r in range(30) if r not in (7, 8, 20, 29)]
    assert got.duplicates == 4 and got.radius == 0
    fewer = thin(features, 10)
    assert len(fewer.rows) == 10 and fewer.duplicates == 4
    assert not {7, 8, 20, 29} & set(fewer.rows.tolist())


def test_rows_with_the_same_hash_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coreset, "hash", lambda row: 0, raising=False)
    features = patches(20, 3)
    features[11] = features[0]
    assert thin(features, 20).rows.tolist() == [r for r in range(20) if r != 11]


def test_a_tie_goes_to_the_lowest_index() -> None:
    square = np.array([[0, 0], [1, 1], [1, -1], [-1, 1], [-1, -1]], np.float32)
    seed = next(s for s in range(100) if thin(square, 1, s).rows.tolist() == [0])
    assert thin(square, 2, seed).rows.tolist() == [0, 1]
    assert thin(square, 3, seed).rows.tolist() == [0, 1, 2]
    assert thin(square, 4, seed).rows.tolist() == [0, 1, 2, 3]


def test_enough_room_keeps_all() -> None:
    features = patches(12, 3)
    for room in (12, 13, 10**9):
        got = thin(features, room)
        assert got.rows.tolist() == list(range(12)) and got.radius == got.duplicates == 0


@pytest.mark.parametrize("dim", [16, DIMS + 72])
def test_the_seed_decides_and_nothing_else(dim: int) -> None:
    features = patches(300, dim)
    one, again, other = thin(features, 30, 1), thin(features.copy(), 30, 1), thin(features, 30, 2)
    assert one.rows.tolist() == again.rows.tolist() and one.radius == again.radius
    assert one.rows.tolist() != other.rows.tolist()
    assert one.rows.dtype == np.int64 and (np.diff(one.rows) > 0).all()


@pytest.mark.parametrize("dim", [100, DIMS + 172])
def test_the_number_of_threads_does_not_matter(dim: int) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    features = patches(3000, dim)
    chosen = []
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads):
            chosen.append(thin(features, 100))
    assert chosen[0].rows.tolist() == chosen[1].rows.tolist()
    assert chosen[0].radius == chosen[1].radius


def test_sums_are_exact_so_the_order_of_the_numbers_does_not_matter() -> None:
    features = patches(500, DIMS)
    turned = features[:, np.random.default_rng(0).permutation(DIMS)]
    one, other = thin(features, 80), thin(turned, 80)
    assert one.rows.tolist() == other.rows.tolist() and one.radius == other.radius


def test_the_projection_is_exact_up_to_one_rounding() -> None:
    dim = DIMS + 5
    rng = np.random.default_rng(5)
    features = (rng.normal(size=(4, dim)) * 10.0 ** rng.integers(-3, 3, dim)).astype(np.float32)
    low, high = features.min(axis=0).astype(np.float64), features.max(axis=0).astype(np.float64)
    points, unit = coreset._points(features, np.arange(4), low, high, np.random.default_rng(9))
    signs = np.random.default_rng(9).integers(0, 2, (dim, DIMS)) * 2 - 1
    step = Fraction(2) ** round(np.log2(unit * DIMS**0.5))
    middle = low / 2 + high / 2
    for row, values in enumerate(features):
        centred = [Fraction(float(v)) - Fraction(m) for v, m in zip(values, middle, strict=True)]
        for column in range(0, DIMS, 16):
            total = sum(
                (int(s) * v for s, v in zip(signs[:, column], centred, strict=True)), Fraction(0)
            )
            assert abs(total / step - int(points[row, column])) <= Fraction(501, 1000)
    assert np.abs(points).max() > 2 ** (coreset.BITS - 1)


def test_distances_survive_the_projection() -> None:
    features = patches(200, 700)
    low, high = features.min(axis=0).astype(np.float64), features.max(axis=0).astype(np.float64)
    points, unit = coreset._points(features, np.arange(200), low, high, np.random.default_rng(0))
    assert points.shape == (200, DIMS)
    pairs = np.triu_indices(200, 1)
    ratio = np.sqrt(squared_distances(points)[pairs] / squared_distances(features)[pairs]) * unit
    assert abs(ratio.mean() - 1) < 0.05 and ratio.std() < 0.09
    assert ratio.min() > 0.7 and ratio.max() < 1.3


def test_every_patch_left_out_is_within_the_radius() -> None:
    features = patches(300, 8)
    for count in (1, 5, 50, 299):
        got = thin(features, count)
        assert left_out(features, got).max() == pytest.approx(got.radius, rel=1e-3)
    long = patches(300, 700)
    got = thin(long, 40)
    assert left_out(long, got).max() == pytest.approx(got.radius, rel=0.3)


@given(st.integers(0, 50), st.integers(2, 40))
@settings(max_examples=20, derandomize=True, deadline=None)
def test_more_patches_cover_more_and_within_twice_of_any_choice(seed: int, count: int) -> None:
    features = patches(60, 4, seed)
    got, more = thin(features, count), thin(features, count + 1)
    assert set(got.rows.tolist()) < set(more.rows.tolist())
    assert more.radius <= got.radius
    rng = np.random.default_rng(seed)
    for _ in range(10):
        subset = np.sort(rng.choice(60, count, replace=False))
        theirs = left_out(features, CoresetSelection(subset, 0, 0)).max()
        assert got.radius <= 2 * theirs * (1 + 1e-3)


def test_patches_closer_than_the_resolution_still_fill_the_bank_once() -> None:
    features = np.zeros((20, 2))
    features[:, 0] = np.arange(20) * 1e-9
    features[13] = 1e3
    got = thin(features, 15)
    assert len(set(got.rows.tolist())) == 15 and 13 in got.rows
    assert got.radius == 0
    signed = np.array([[0.0], [-0.0]])
    assert len(thin(signed, 1).rows) == 1 and thin(signed, 1).radius == 0


def test_a_memory_map_is_never_copied_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, dim = 20_000, DIMS + 32
    for name, value in (("BLOCK", 32), ("ACTIVE", 128)):  # makes the fixed part of the memory small
        monkeypatch.setattr(coreset, name, value)
    made = np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32)
    made[1::100] = made[0]
    np.save(tmp_path / "bank.npy", made)
    wanted = thin(made, 50)
    del made
    mapped = np.load(tmp_path / "bank.npy", mmap_mode="r")
    tracemalloc.start()
    try:
        got = thin(mapped, 50)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert got.rows.tolist() == wanted.rows.tolist() and got.duplicates == 200
    bound = count * (2 * DIMS + 48)
    assert bound < mapped.nbytes / 2
    assert peak < bound + 2**20


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_all_widths_of_numbers_choose_alike(dtype: type[np.floating[Any]]) -> None:
    features = np.round(patches(200, 5) * 4).astype(dtype)
    wanted = thin(features.astype(np.float64), 25)
    got = thin(features, 25)
    assert got.rows.tolist() == wanted.rows.tolist() and got.radius == wanted.radius


@pytest.mark.parametrize("count", [1, 2, 199, 200, 201, 399, 650])
def test_progress_ends_at_the_total_and_is_seldom_told(count: int) -> None:
    features = patches(700, 2)
    reported: list[tuple[int, int]] = []
    thin(features, count, progress=lambda done, total: reported.append((done, total)))
    assert reported[-1] == (count, count) and {total for _, total in reported} == {count}
    done = [d for d, _ in reported]
    assert done == sorted(set(done))
    assert min(count, 100) - 1 <= len(reported) <= MOST_REPORTS


def test_progress_counts_what_there_is() -> None:
    reported: list[tuple[int, int]] = []
    thin(np.ones((5, 3)), 4, progress=lambda done, total: reported.append((done, total)))
    assert reported == [(1, 1)]


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(UsageError, match="max_patches is 0; keep at least one"):
        thin(patches(3, 2), 0)
    with pytest.raises(UsageError, match="seed is -1"):
        thin(patches(3, 2), 2, -1)
    for wrong in (np.zeros((0, 4)), np.zeros((4, 0)), np.zeros(4), np.zeros((4, 2), int)):
        with pytest.raises(ScoringError, match=r"features to thin are \w+ of shape"):
            thin(wrong, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("room", [5, 5000])
def test_numbers_that_are_none_are_refused(value: float, room: int) -> None:
    features = patches(2000, 3)
    features[1500, 1] = value
    with pytest.raises(ScoringError, match="patch 1500 contains NaN or infinity"):
        thin(features, room)
