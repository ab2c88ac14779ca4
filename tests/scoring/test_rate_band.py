"""The band of false-reject rates holds for all thresholds at once, and is as wide as it must be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anoco_edge.scoring.rate_band import RateBand, coverage, distribution_band


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_drawn_distributions_lie_in_the_band_as_often_as_it_says(n: int) -> None:
    low, high = distribution_band(n, 0.9)
    drawn = np.sort(np.random.default_rng(n).random((20_000, n)), axis=1)
    inside = ((drawn >= low[1:]) & (drawn <= high[:-1])).all(axis=1).mean()
    assert inside == pytest.approx(0.9, abs=0.008)  # four standard deviations


def test_the_coverage_of_two_scores_is_that_of_the_integral() -> None:
    low, high = np.array([0.0, 0.1, 0.4]), np.array([0.6, 0.95, 1.0])
    # 2 * area of {u < v, 0.1 <= u <= 0.6, 0.4 <= v <= 0.95}
    area = 0.3 * 0.55 + sum(0.2 * (0.95 - u) for u in (0.5,))
    assert coverage(low, high) == pytest.approx(2 * area)


def test_the_level_is_met_and_never_missed() -> None:
    for n in (3, 99):
        for share in (0.5, 0.9, 0.99):
            found = coverage(*distribution_band(n, share))
            assert share <= found < share + 1e-5


def test_it_is_narrower_in_the_tail_than_dkw() -> None:
    low, _ = distribution_band(100, 0.9)
    assert 1 - low[-1] < 0.4 * math.sqrt(math.log(2 / 0.1) / 200)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_higher_threshold_never_rejects_more(scores: list[float], a: float, b: float) -> None:
    band = RateBand.of(scores)
    lower, higher = band.rate(min(a, b)), band.rate(max(a, b))
    assert higher[0] <= lower[0] <= lower[1] <= 1 and higher[1] <= lower[1]
    seen = float(np.mean(np.asarray(scores) > a))
    assert band.rate(a)[0] <= seen <= band.rate(a)[1]


def test_without_scores_nothing_is_known() -> None:
    assert RateBand.of([]).rate(1.0) == (0.0, 1.0)
