"""Hard cases that every scorer must decide as the reference does.

The test file of a scorer runs them with `class TestHardCases(HardCases): scorer = "native"`.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import numpy as np
import pytest
from agreement import assert_agrees
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anoco_edge.scoring import Metric, References, Scores, score_patches

Features = NDArray[np.float32]
Bank = NDArray[np.floating[Any]]
Made = tuple[np.random.Generator, int, int, int]
EVERY_METRIC: tuple[Metric, ...] = get_args(Metric)


def both(
    scorer: str, query: Features, bank: Bank, metric: Metric, lam: float = 1.0, floor: float = 0.05
) -> tuple[Scores, Scores]:
    """Return the scores of the scorer and those of the reference."""
    got, expected = (
        score_patches(query, bank, lam, metric, name, floor=floor) for name in (scorer, "reference")
    )
    return got, expected


def check(
    scorer: str,
    query: Features,
    bank: Bank,
    *,
    lam: float = 1.0,
    floor: float = 0.05,
    wild: bool = False,
    max_undecided: float = 1.0,
) -> None:
    """Check that a scorer agrees with the reference in every metric.

    With `wild` norms, the scale of the tolerance is that of f~ (see `assert_agrees`).
    """
    scores = {metric: both(scorer, query, bank, metric, lam, floor) for metric in EVERY_METRIC}
    reach = np.sqrt(scores["l2"][1].energy) if wild else None
    for metric, (got, expected) in scores.items():
        assert_agrees(
            got,
            expected,
            query,
            metric=metric,
            floor=floor,
            reach=reach,
            max_undecided=max_undecided,
        )


def line_of_parts(
    half: bool = False, queries: int = 500, references: int = 1500, dim: int = 256
) -> tuple[Features, References]:
    """Return clustered patches, outliers, and aliens that have the whole bank as neighbours."""
    rng = np.random.default_rng(2)
    shared = np.ones(dim, np.float32)
    centres = shared + rng.normal(size=(40, dim)).astype(np.float32)

    def patches(count: int, noise: float) -> Features:
        rows = centres[rng.integers(40, size=count)]
        rows += noise * rng.standard_normal((count, dim), dtype=np.float32)
        return rows * rng.uniform(0.8, 1.25, size=(count, 1)).astype(np.float32)

    bank, query = patches(references, 0.40), patches(queries, 0.42)
    query[::16] = shared + rng.normal(size=query[::16].shape)
    query[::144] -= shared
    return query, References.of(bank.astype(np.float16) if half else bank)[0]


def lattice(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    """Return features of whole numbers from -1 to 2, which tie exactly or within rounding."""
    rows = rng.integers(-1, 3, size=(n_q + n_r, dim)).astype(np.float32)
    rows[(rows == 0).all(axis=1)] = 1
    return rows[:n_q], rows[n_q:]


def scattered(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    rows = (rng.uniform(0, 3) + rng.normal(size=(n_q + n_r, dim))).astype(np.float32)
    return rows[:n_q], rows[n_q:]


def duplicated(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    query, bank = scattered(rng, n_q, n_r, dim)
    return query, bank[rng.integers(n_r, size=2 * n_r)]


def one_reference(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    return scattered(rng, n_q, 1, dim)


def one_query(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    return scattered(rng, 1, n_r, dim)


def equal(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    """Return queries that equal a reference, are within rounding of one, or a multiple of one."""
    _, bank = scattered(rng, n_q, n_r, dim)
    query = bank[rng.integers(n_r, size=n_q)] * rng.choice([1, 1 + 1e-6, 3], size=(n_q, 1))
    return query.astype(np.float32), bank


def opposed(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    query, bank = scattered(rng, n_q, n_r, dim)
    size = min(n_q, n_r)
    bank[:size] = -query[:size] * rng.choice([1, 0.25, 20], size=(size, 1))
    return query, bank


def alien(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    """Return queries at a right angle to every reference."""
    query, bank = scattered(rng, n_q, n_r, dim)
    nothing_q, nothing_r = np.zeros_like(query), np.zeros_like(bank)
    return np.hstack([query, nothing_q]), np.hstack([nothing_r, bank])


def everything_near(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    query, bank = scattered(rng, n_q, n_r, dim)
    return query, (50 + bank).astype(np.float32)


KINDS = (
    lattice,
    scattered,
    duplicated,
    one_reference,
    one_query,
    equal,
    opposed,
    alien,
    everything_near,
)

# These rows of whole numbers have length 2, 4 or 8, so every cosine is exact in float32 too and no
# row is undecided.
SQUARES = [(2, 0, 0, 0, 0), (1, 1, 1, 1, 0), (4, 0, 0, 0, 0), (3, 2, 1, 1, 1), (6, 4, 2, 2, 2)]


@st.composite
def generator(draw: st.DrawFn) -> Made:
    seed = draw(st.integers(0, 2**32 - 1))
    sizes = draw(st.integers(1, 12)), draw(st.integers(1, 40)), draw(st.integers(1, 16))
    return np.random.default_rng(seed), *sizes


# Several scorers inherit one class of cases, which hypothesis would report as a mistake.
common = settings(
    derandomize=True,
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.differing_executors],
)


class HardCases:
    """The tests of the scorer that a subclass names in `scorer`."""

    scorer: ClassVar[str]

    @pytest.mark.parametrize("kind", KINDS)
    @given(
        generator(),
        st.sampled_from([1e-3, 1.0, 100.0]),
        st.sampled_from([0.0, 0.05]),
        st.booleans(),
    )
    @common
    def test_agrees(self, kind: Any, made: Made, lam: float, floor: float, half: bool) -> None:
        query, bank = kind(*made)
        rows = bank.astype(np.float16) if half else bank
        check(self.scorer, query, rows, lam=lam, floor=floor)

    @pytest.mark.parametrize("kind", KINDS)
    @given(generator(), st.sampled_from([1e-24, 1.0, 100.0]), st.sampled_from([0.0, 0.05]))
    @common
    def test_agrees_with_wild_norms(self, kind: Any, made: Made, lam: float, floor: float) -> None:
        rng = made[0]
        query, bank = (
            (rows * 10 ** rng.uniform(-3, 3, size=(len(rows), 1))).astype(np.float32)
            for rows in kind(*made)
        )
        check(self.scorer, query, bank, lam=lam, floor=floor, wild=True)

    def test_most_rows_of_scattered_features_are_decided(self) -> None:
        """The hard cases may leave rows undecided; ordinary features leave at most 3% of them."""
        for seed in range(20):
            rng = np.random.default_rng(seed)
            check(self.scorer, *scattered(rng, 40, 60, 12), max_undecided=0.03)

    @given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 300))
    @settings(common, max_examples=60)
    def test_ties_are_decided_alike(self, seed: int, n_q: int, n_r: int) -> None:
        rng = np.random.default_rng(seed)
        rows = rng.permuted(np.array(SQUARES)[rng.integers(5, size=n_q + n_r)], axis=1)
        rows = rows * rng.choice([1, 1, 1, -1], size=rows.shape)
        query, bank = rows[:n_q].astype(np.float32), rows[n_q:].astype(np.float32)
        for metric in EVERY_METRIC:
            got, expected = both(self.scorer, query, bank, metric)
            assert_agrees(got, expected, query, metric=metric, eps=-1)
            np.testing.assert_array_equal(got.similarity, expected.similarity)

    def test_a_crowd_that_ties_with_the_first_violator_is_left_out(self) -> None:
        """All cosines to q are 1/2. The anchor and its 99 equals come first, then a violator."""
        query = np.array([[2, 0, 0, 0]], np.float32)
        bank = np.array([[1, 1, 1, 1]] * 100 + [[1, 1, 1, -1]], np.float32)
        got, expected = both(self.scorer, query, bank, "product")
        assert_agrees(got, expected, query, metric="product", eps=-1)
        assert got.neighbors[0] == 1

    def test_the_floor_also_holds_an_anchor_that_is_left_alone(self) -> None:
        """Both references are at a right angle to q and opposed to each other.

        They tie, and the second is a violator, so the anchor has no other neighbour.
        """
        query = np.array([[2, 0, 0]], np.float32)
        bank = np.array([[0, 4, 0], [0, -4, 0]], np.float32)
        for metric in EVERY_METRIC:
            got, expected = both(self.scorer, query, bank, metric)
            assert_agrees(got, expected, query, metric=metric, eps=-1)
            assert got.neighbors[0] == 1 and got.energy[0] > 1e-3

    def test_an_f_of_length_zero_has_turned_by_a_right_angle(self) -> None:
        """w = floor 2 |q| |r| / (|q| + |r|) = 1/2 = lambda, so lambda q + w r is exactly zero."""
        query, bank = np.array([[1, 0]], np.float32), np.array([[-1, 0]], np.float32)
        for metric in EVERY_METRIC:
            scores = both(self.scorer, query, bank, metric, 0.5, 0.5)
            assert [found.energy[0] for found in scores] == [1, 1]

    @pytest.mark.parametrize("exponent", [-8, -5, 6, 8, 9])
    def test_long_and_short_features_neither_overflow_nor_vanish(self, exponent: int) -> None:
        """With thousands of neighbours d_i |r| may pass 1e19, whose square float32 cannot hold."""
        rng = np.random.default_rng(4)
        query, bank = everything_near(rng, 6, 1500, 8)
        scale = np.float32(10.0**exponent / 150)
        for lam in (1e-24, 1.0, 1e24):
            check(self.scorer, query * scale, bank * scale, lam=lam, max_undecided=0.5)

    @pytest.mark.parametrize("lam", [1e-24, 1.0, 1e24])
    def test_without_a_floor_what_is_not_pulled_does_not_turn(self, lam: float) -> None:
        query, bank = np.array([[1, 0]], np.float32), np.array([[-1, 1e-5]], np.float32)
        for metric in EVERY_METRIC:
            assert score_patches(query, bank, lam, metric, self.scorer, floor=0.0).energy[0] == 0

    def test_zero_norm_references_are_dropped_and_anchors_count_the_original_rows(self) -> None:
        query, bank = scattered(np.random.default_rng(6), 30, 50, 8)
        bank[[0, 7, 20, 49]] = 0
        got, expected = both(self.scorer, query, bank, "product")
        assert_agrees(got, expected, query, metric="product")
        assert not set(got.anchor) & {0, 7, 20, 49}
        own = score_patches(bank[[1, 8, 48]], bank, scorer=self.scorer)
        assert own.anchor.tolist() == [1, 8, 48]
