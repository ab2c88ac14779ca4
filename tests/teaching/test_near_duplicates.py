"""Near duplicates among patches: the same as comparing one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from anoco_edge.teaching import near_duplicates
from anoco_edge.teaching.near_duplicates import without_near_duplicates


def one_by_one(
    features: NDArray[np.float32], fixed: NDArray[np.bool_], distance: float
) -> NDArray[np.bool_]:
    rows = features.astype(np.float64)
    stays = fixed.copy()
    for number in np.flatnonzero(~fixed):
        away = np.linalg.norm(rows[stays] - rows[number], axis=1)
        stays[number] = not (away <= distance * np.linalg.norm(rows[number])).any()
    return stays


@pytest.mark.parametrize("block", [1, 7, 1024])
@pytest.mark.parametrize("distance", [0.02, 0.3, 0.6])
def test_rows_stay_as_when_they_are_taken_one_by_one(
    monkeypatch: pytest.MonkeyPatch, block: int, distance: float
) -> None:
    monkeypatch.setattr(near_duplicates, "BLOCK", block)
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(12, 6))
    features = centers[rng.integers(12, size=150)] + rng.normal(size=(150, 6)) * 0.4
    scaled = (features * rng.uniform(0.1, 9, (150, 1))).astype(np.float32)
    fixed = rng.random(150) < 0.2
    found = without_near_duplicates(scaled, fixed, distance)
    np.testing.assert_array_equal(found, one_by_one(scaled, fixed, distance))
    assert fixed.sum() < found.sum() < 150 or distance != 0.3


def test_fixed_rows_stay_and_copies_do_not() -> None:
    features = np.ones((5, 3), np.float16)
    fixed = np.array([True, True, False, False, False])
    assert without_near_duplicates(features, fixed, 0.1).tolist() == fixed.tolist()
    none = np.zeros(5, np.bool_)
    assert without_near_duplicates(features, none, 0.1).tolist() == [True] + [False] * 4
