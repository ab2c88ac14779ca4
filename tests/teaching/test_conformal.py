"""The threshold keeps its guarantee: exact ranks, and false rejects counted in simulations."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from anoco_edge.demo.render import render
from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.scoring import conformal
from anoco_edge.scoring.conformal import (
    Conformal,
    best_rate,
    beta_interval,
    checked_scores,
    conformal_threshold,
    describe,
    group_maxima,
    parts_needed,
    percent,
    score_range,
)

SPLITS = 200


@pytest.fixture(autouse=True)
def intervals_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache intervals, since simulations ask for the same few hundreds of times."""
    monkeypatch.setattr(conformal, "beta_interval", functools.cache(beta_interval))


@pytest.mark.parametrize(
    ("parts", "rate", "order"),
    [
        (99, 0.01, 99),  # 100 * (1 - 0.01) is 99.00000000000001 in some orders of float arithmetic
        (19, 0.05, 19),
        (9, 0.3, 7),
        (9, 0.7, 3),
        (9, 0.1, 9),
        (999, 0.001, 999),
        (150, 0.01, 150),
        (199, 0.01, 198),
        (1, 0.5, 1),
        (3, 0.9, 1),
        (49, 2e-2, 49),
    ],
)
def test_the_rank_is_exact_for_rates_that_floats_cannot_hold(
    parts: int, rate: float, order: int
) -> None:
    scores = np.random.default_rng(0).permutation(np.arange(1, parts + 1))
    found = conformal_threshold(scores, rate)
    assert (found.order, found.parts, found.threshold) == (order, parts, order)
    assert found.false_reject == (parts + 1 - order) / (parts + 1) <= rate == found.asked


def test_all_rates_of_two_decimals_against_fractions() -> None:
    for n in (1, 2, 3, 6, 9, 13, 19, 24, 49, 66, 99, 100, 129):
        for hundredths in range(1, 100):
            k = math.ceil((n + 1) * (1 - Fraction(hundredths, 100)))
            if k <= n:
                assert conformal_threshold(range(n), hundredths / 100).order == k
            assert (k <= n) == (n >= parts_needed(hundredths / 100))


@given(
    st.lists(st.integers(0, 5) | st.floats(0, 9), min_size=1, max_size=40),
    st.integers(1, 999),
)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_the_lowest_score_that_is_high_enough(scores: list[float], thousandths: int) -> None:
    """By brute force, it is the lowest score that enough of the n + 1 ranks lie at or below."""
    n, rate = len(scores), Fraction(thousandths, 1000)
    fitting = [k for k in range(1, n + 1) if Fraction(n + 1 - k, n + 1) <= rate]
    if not fitting:
        with pytest.raises(UsageError, match="at best"):
            conformal_threshold(scores, thousandths / 1000)
        return
    found = conformal_threshold(scores, thousandths / 1000)
    assert found.order == fitting[0]
    assert found.threshold == sorted(scores)[fitting[0] - 1]
    assert sum(s > found.threshold for s in scores) <= n - found.order


def test_ties_pass() -> None:
    found = conformal_threshold([2.0] * 30 + [3.0], 0.1)
    assert found.threshold == 2.0 and found.order == 29


def test_what_numbers_of_parts_support() -> None:
    assert [best_rate(n) for n in (1, 4, 99)] == [0.5, 0.2, 0.01]
    assert [parts_needed(r) for r in (0.5, 0.2, 0.05, 0.01, 0.001, 0.999)] == [1, 4, 19, 99, 999, 1]
    assert parts_needed(0.3) == 3 and parts_needed(0.07) == 14


def test_too_few_parts_are_refused_with_the_number_that_is_needed() -> None:
    with pytest.raises(UsageError) as caught:
        conformal_threshold([1.0, 2.0, 3.0, 4.0], 0.01)
    assert caught.value.what == (
        "4 pictures support a false-reject rate of 20 % at best, 1 % was asked"
    )
    assert caught.value.hint == (
        "give at least 99 good pictures, or accept 20 % with `accept_fewer=True`"
    )
    with pytest.raises(UsageError, match=r"1 part supports .* 50 % at best, 0\.25 % was asked"):
        conformal_threshold([1.0], 0.0025, unit="part")
    # The best possible rate is never rounded to one that would be refused again.
    with pytest.raises(UsageError, match=r"8\.4 % at best, 8\.3 % was asked"):
        conformal_threshold(range(11), 0.083)
    with pytest.raises(UsageError, match="no picture to calibrate with; give at least 99 good"):
        conformal_threshold([], 0.01, accept_fewer=True)


def test_fewer_parts_may_be_accepted() -> None:
    found = conformal_threshold([1.0, 4.0, 3.0, 2.0], 0.01, accept_fewer=True)
    assert (found.threshold, found.order, found.false_reject, found.asked) == (4.0, 4, 0.2, 0.01)
    # Where there are enough parts, accepting fewer changes nothing.
    assert conformal_threshold(range(9), 0.3, accept_fewer=True).order == 7


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5, math.nan, math.inf])
def test_a_rate_lies_between_0_and_1(rate: float) -> None:
    with pytest.raises(UsageError, match=rf"{rate}.*between 0 and 1, such as 0.01"):
        conformal_threshold([1.0] * 200, rate)
    with pytest.raises(UsageError):
        parts_needed(rate)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, -1e-9])
def test_what_is_no_score_never_becomes_a_threshold(wrong: float) -> None:
    with pytest.raises(ScoringError, match="score 3 of 4 is"):
        conformal_threshold([1.0, 2.0, wrong, 3.0], 0.3)
    with pytest.raises(ScoringError):
        group_maxima([1.0, wrong, 5.0], ["a", "a", "a"])
    assert checked_scores([0.0, -0.0]).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("a", "b"), [(1, 1), (1, 99), (99, 1), (5, 7), (1, 100000), (1000, 99001), (50000, 50001)]
)
def test_beta_intervals_are_those_of_scipy(a: int, b: int) -> None:
    for share in (0.5, 0.9, 0.9999):
        tail = (1 - share) / 2
        wanted = stats.beta.ppf([tail, 1 - tail], a, b)
        np.testing.assert_allclose(beta_interval(a, b, share), wanted, rtol=1e-8, atol=1e-9)


def test_small_quantiles_keep_their_digits() -> None:
    low, _ = beta_interval(1, 100000, 0.999)
    assert low == pytest.approx(stats.beta.ppf(0.0005, 1, 100000), rel=1e-9)


@pytest.mark.parametrize(("a", "b", "share"), [(0, 1, 0.9), (1, 0, 0.9), (1, 1, 0.0), (1, 1, 1.0)])
def test_beta_intervals_that_do_not_exist(a: int, b: int, share: float) -> None:
    with pytest.raises(UsageError, match=r"Beta\("):
        beta_interval(a, b, share)


def realised(
    pool: NDArray[np.float64], n: int, rate: float, seed: int
) -> tuple[NDArray[np.float64], Conformal]:
    """Return the false rejects among the parts that were not drawn, for many random splits."""
    rng = np.random.default_rng(seed)
    rates = []
    for _ in range(SPLITS):
        drawn = rng.permutation(pool)
        found = conformal_threshold(drawn[:n], rate)
        rates.append(float((drawn[n:] > found.threshold).mean()))
    return np.array(rates), found


def three_errors(rates: NDArray[np.float64]) -> float:
    return 3 * float(rates.std(ddof=1)) / math.sqrt(len(rates))


@pytest.mark.parametrize(
    ("n", "rate"), [(19, 0.05), (99, 0.01), (100, 0.1), (50, 0.03), (9, 0.3), (4, 0.2)]
)
@pytest.mark.parametrize("kind", ["continuous", "tied"])
def test_false_rejects_stay_below_the_bound_on_average(kind: str, n: int, rate: float) -> None:
    rng = np.random.default_rng(n)
    pool = rng.lognormal(0, 1.5, 3000)
    if kind == "tied":
        pool = np.floor(2 * pool).clip(0, 8)
    rates, found = realised(pool, n, rate, seed=1)
    assert rates.mean() <= found.false_reject + three_errors(rates)
    assert found.false_reject <= rate
    if kind == "continuous":  # it is no lower than it must be, since the bound is the mean
        assert rates.mean() >= found.false_reject - three_errors(rates)


@pytest.mark.parametrize(("n", "rate"), [(99, 0.01), (99, 0.1), (19, 0.05), (60, 0.25)])
def test_one_calibrations_rate_follows_the_beta_law(n: int, rate: float) -> None:
    rng = np.random.default_rng(7)
    found = [conformal_threshold(rng.random(n), rate) for _ in range(600)]
    rates = np.array([1 - f.threshold for f in found])  # exact, because the scores are uniform
    k = found[0].order
    assert stats.kstest(rates, stats.beta(n + 1 - k, k).cdf).pvalue > 0.01
    low, high = found[0].interval
    inside = float(((low <= rates) & (rates <= high)).mean())
    assert inside == pytest.approx(0.9, abs=0.04)


def test_the_score_range_holds_the_threshold_one_would_want() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        scores = rng.random(200)
        found = conformal_threshold(scores, 0.05)
        low, high = score_range(scores, found)
        assert low < found.threshold < high
        hits += low <= 1 - found.false_reject <= high
    assert 0.88 <= hits / 300 <= 0.97


def test_a_score_range_is_open_where_no_score_bounds_it() -> None:
    assert score_range([1.0, 2.0], conformal_threshold([1.0, 2.0], 0.5)) == (0.0, math.inf)


def test_false_rejects_on_rendered_parts() -> None:
    """Pixels are real, and the score is the difference from the closest of four others."""
    pictures = np.array([render("cloth", s, size=64).rgb.mean(axis=2) for s in range(164)])
    small = pictures.reshape(-1, 16, 4, 16, 4).mean(axis=(2, 4)).reshape(164, -1)
    scores = np.abs(small[4:, None] - small[:4]).mean(axis=2).min(axis=1)
    for n, rate in ((39, 0.05), (9, 0.2)):
        rates, found = realised(scores, n, rate, seed=2)
        print(f"{n} rendered parts, asked {rate:.3f}: {rates.mean():.4f} rejected on average")
        assert rates.mean() <= found.false_reject + three_errors(rates)


def bursts(
    rng: np.random.Generator, parts: int, frames: int = 8
) -> tuple[NDArray[np.float64], list[str]]:
    """Draw bursts, in which the pictures of one part share the part's own deviation."""
    scores = rng.lognormal(0, 1, (parts, 1)) * rng.lognormal(0, 0.1, (parts, frames))
    return scores.ravel(), [str(k) for k in range(parts) for _ in range(frames)]


def test_groups_keep_the_bound_that_bursts_break() -> None:
    rng = np.random.default_rng(5)
    line = bursts(rng, 4000)[0].reshape(4000, 8).max(axis=1)
    rate = 0.05
    grouped, alone = [], []
    for _ in range(SPLITS):
        scores, groups = bursts(rng, 19)
        by_part = conformal_threshold(group_maxima(scores.tolist(), groups), rate)
        grouped.append((line > by_part.threshold).mean())
        alone.append((line > conformal_threshold(scores, rate).threshold).mean())
    kept, broken = np.array(grouped), np.array(alone)
    assert by_part.parts == 19
    assert kept.mean() <= rate + three_errors(kept)
    assert broken.mean() - three_errors(broken) > 1.2 * rate


def test_group_maxima_in_order_of_first_appearance() -> None:
    assert group_maxima([1, 9, 2, 7, 3], ["b", "a", "b", "c", "a"]) == [2.0, 9.0, 7.0]
    assert group_maxima([], []) == []
    with pytest.raises(UsageError, match="2 scores but 1 groups"):
        group_maxima([1.0, 2.0], ["a"])


@pytest.mark.parametrize(
    ("rate", "down", "up"),
    [
        (0.0, "0 %", "0 %"),
        (0.00051, "0.05 %", "0.06 %"),
        (0.000004, "0.0004 %", "0.0004 %"),
        (0.0025, "0.25 %", "0.25 %"),
        (0.0298, "3.0 %", "3.0 %"),
        (0.07, "7 %", "7 %"),
        (1 / 151, "0.66 %", "0.67 %"),
        (1 / 3, "33.3 %", "33.4 %"),
        (0.2, "20 %", "20 %"),
        (1.0, "100 %", "100 %"),
    ],
)
def test_percentages_read_well_and_bounds_are_never_understated(
    rate: float, down: str, up: str
) -> None:
    assert (percent(rate), percent(rate, up=True)) == (down, up)


def test_the_words_for_held_out_parts() -> None:
    assert describe(conformal_threshold(range(99), 0.01), exact=True) == (
        "99 good parts, held out. At most 1 % of good parts are rejected on average over such "
        "calibrations (1 of 100). For this one calibration the true rate lies with 90 % "
        "probability between 0.05 % and 3.0 %. This holds as long as parts, light and camera stay "
        "as they were in these pictures."
    )
    grouped = describe(conformal_threshold(range(39), 0.05), exact=True, groups=True)
    assert grouped.startswith(
        "39 good parts, held out, each judged by the highest score of its pictures. At most 5 % "
    )
    assert "(2 of 40)" in grouped


def test_the_words_say_when_less_was_accepted() -> None:
    found = conformal_threshold([1, 2, 3, 4], 0.01, accept_fewer=True)
    assert describe(found, exact=True).startswith(
        "Only 4 good parts, held out: that supports 20 % at best, 1 % was asked. At most 20 % "
    )


def test_the_words_promise_nothing_exact_for_references() -> None:
    words = describe(conformal_threshold(range(12), 0.1), exact=False)
    assert words.startswith("12 references, scored against each other. There is no exact guarantee")
    assert "one reference less" in words and "not independent" in words
    assert "at most 7.7 % of good parts would be rejected" in words
    assert words.endswith("calibrate with held-out pictures of good parts.")
    assert "probability" not in words and "% of good parts are rejected" not in words
