"""The reference equals the paper: a literal sort-and-walk, and the Laplacian system solved."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.native.library import why_not
from anoco_edge.scoring import (
    POOLINGS,
    Metric,
    Parameters,
    References,
    choose_scorer,
    open_scorer,
    pool,
    score_patches,
)
from anoco_edge.scoring.pooling import smooth_grid
from anoco_edge.scoring.reference import edge_weights, non_conformity, retrieve, solve

Matrix = NDArray[np.float64]
LAMBDAS = [1e-24, 1e-3, 1.0, 100.0]
FLOORS = [0.0, 0.05]
# Decisions closer than this are rounding noise of float64.
DECIDED = 1e-12

EVERY_METRIC: tuple[Metric, ...] = get_args(Metric)


def cosine(u: Matrix, v: Matrix) -> float:
    dot = math.fsum(a * b for a, b in zip(u, v, strict=True))
    return dot / math.sqrt(math.fsum(u * u) * math.fsum(v * v))


def column_sums(rows: list[Matrix]) -> Matrix:
    return np.array([math.fsum(column) for column in np.transpose(rows)])


def walk(q: Matrix, references: Matrix) -> list[int]:
    """Follow section 3.2 literally: sort by s_ij, keep the longest prefix with a_ij > s_ij*.

    References that tie with the first violator come after it, whatever their index (DESIGN).
    """
    s = [cosine(q, r) for r in references]
    order = sorted(range(len(s)), key=lambda j: (-s[j], j))
    anchor = order[0]
    prefix = [anchor]
    for j in order[1:]:
        if not cosine(references[anchor], references[j]) > s[anchor]:
            return [anchor] + [k for k in prefix[1:] if s[k] > s[j]]
        prefix.append(j)
    return prefix


def literal(q: Matrix, references: Matrix, lam: float, floor: float) -> dict[str, Any]:
    """Compute Eq. 1 to 10 for one query patch in loops."""
    near = walk(q, references)
    q_norm = math.sqrt(math.fsum(q * q))
    pulls, terms, degree = [], [lam * q], 0.0
    for j in near:
        r = references[j]
        r_norm = math.sqrt(math.fsum(r * r))
        w = max(cosine(q, r), floor) * (2 * q_norm * r_norm / (q_norm + r_norm))  # Eq. 2
        pulls.append(w * (r - q))
        terms.append(w * r)
        degree += w
    moved = column_sums(terms) / (lam + degree)  # Eq. 9
    drift = column_sums(pulls) / (lam + degree)  # f~ - q, computed without their cancellation
    length = np.linalg.norm(moved)
    turn = ((moved / length - q / q_norm) ** 2).sum() / 2 if length else 1.0
    l2 = float(drift @ drift)
    energies = {"product": l2 * turn, "l2": l2, "cosine": turn}  # Eq. 10 and its factors
    return {"anchor": near[0], "near": sorted(near), "q_norm": q_norm, "l2": l2, **energies}


def check_against_literal(query: Matrix, references: Matrix, lam: float, floor: float) -> int:
    """Check that every decided row agrees in all metrics, and return how many were decided."""
    units = [m / np.linalg.norm(m, axis=1, keepdims=True) for m in (query, references)]
    neighbours = retrieve(*units).neighbors
    scores = {
        metric: score_patches(query, references, lam, metric, "reference", floor=floor)
        for metric in EVERY_METRIC
    }
    margin = scores["product"].margin
    assert margin is not None
    decided = np.flatnonzero(margin > DECIDED)
    for i in decided:
        wanted = literal(query[i], references, lam, floor)
        assert np.flatnonzero(neighbours[i]).tolist() == wanted["near"]
        for metric, got in scores.items():
            assert got.anchor[i] == wanted["anchor"]
            assert got.neighbors[i] == len(wanted["near"])
            # Of a drift much shorter than q, float64 keeps 1e-16 |q|, which is the second term.
            scale = 1.0 if metric == "cosine" else max(wanted["q_norm"] ** 2, wanted["l2"])
            wrong = abs(got.energy[i] - wanted[metric])
            assert wrong <= 1e-12 * wanted[metric] + 1e-18 * scale
    return len(decided)


@st.composite
def features(draw: st.DrawFn) -> tuple[Matrix, Matrix]:
    """Draw clustered or scattered rows, with norms of similar or very different size."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dim = draw(st.integers(1, 9))
    n_q, n_r = draw(st.integers(1, 6)), draw(st.integers(1, 25))
    spread = draw(st.sampled_from([0.05, 0.5, 3.0]))
    centre = rng.normal(size=dim)
    decades = draw(st.sampled_from([0.0, 3.0]))
    rows = centre + spread * rng.normal(size=(n_q + n_r, dim))
    rows *= 10 ** rng.uniform(-decades, decades, size=(n_q + n_r, 1))
    return rows[:n_q], rows[n_q:]


@given(features(), st.sampled_from(LAMBDAS), st.sampled_from(FLOORS))
@settings(derandomize=True, deadline=None, max_examples=150)
def test_equals_the_literal_walk(case: tuple[Matrix, Matrix], lam: float, floor: float) -> None:
    check_against_literal(*case, lam, floor)


@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("floor", FLOORS)
def test_equals_the_literal_walk_on_a_mid_size_bank(lam: float, floor: float) -> None:
    rng = np.random.default_rng(3)
    centres = 1 + rng.normal(size=(12, 24))
    references = centres[rng.integers(12, size=150)] + 0.4 * rng.normal(size=(150, 24))
    query = centres[rng.integers(12, size=20)] + 0.6 * rng.normal(size=(20, 24))
    query[:4] = rng.normal(size=(4, 24))
    query[4] = -query[4]
    assert check_against_literal(query, references, lam, floor) == 20
    counts = score_patches(query, references, scorer="reference").neighbors
    assert counts.min() == 1 and counts.max() == 150  # the case is not trivial


# Rows have length 2, 4 or 8 and integer entries, so all cosines are exact multiples of 1/64. Ties
# are then ties in every precision, not rounding noise.
SQUARES = [(2, 0, 0, 0, 0), (1, 1, 1, 1, 0), (4, 0, 0, 0, 0), (3, 2, 1, 1, 1), (2, 2, 2, 2, 0)]


@st.composite
def exact_rows(draw: st.DrawFn, max_size: int) -> Matrix:
    count = draw(st.integers(1, max_size))
    rows = []
    for _ in range(count):
        row = draw(st.permutations(draw(st.sampled_from(SQUARES))))
        signs = draw(st.tuples(*[st.sampled_from([1, 1, 1, -1])] * 5))
        rows.append(np.multiply(row, signs))
    return np.array(rows, np.float64)


@given(exact_rows(4), exact_rows(20))
@settings(derandomize=True, deadline=None, max_examples=200)
def test_ties_go_to_the_lowest_index_and_violators_take_their_equals_along(
    query: Matrix, references: Matrix
) -> None:
    scores = score_patches(query, references, scorer="reference")
    units = [m / np.linalg.norm(m, axis=1, keepdims=True) for m in (query, references)]
    neighbours = retrieve(*units).neighbors
    for i, q in enumerate(query):
        near = walk(q, references)
        assert scores.anchor[i] == near[0]
        assert np.flatnonzero(neighbours[i]).tolist() == sorted(near)
        assert scores.neighbors[i] == len(near)


def test_a_tie_with_the_first_violator_is_left_out() -> None:
    # As seen from q, rows 1 and 2 are equally far (s = 1/2); row 1 agrees with the anchor, row 2
    # does not.
    query = np.array([[2.0, 0, 0, 0, 0]])
    anchor, ally, violator = [3, 2, 1, 1, 1], [1, 1, 1, 1, 0], [1, -1, -1, -1, 0]
    references = np.array([anchor, ally, violator], np.float64)
    assert score_patches(query, references, scorer="reference").neighbors.tolist() == [1]
    assert score_patches(query, references[:2], scorer="reference").neighbors.tolist() == [2]


@pytest.mark.parametrize("lam", [1e-3, 1.0, 100.0])
def test_equals_the_laplacian_system(lam: float) -> None:
    """Eq. 3 to 9 are solved by a linear solver, with L = D - W over the stacked nodes."""
    rng = np.random.default_rng(11)
    query, references = 1 + 2 * rng.normal(size=(7, 12)), 1 + rng.normal(size=(30, 12))
    n_q, n_r = len(query), len(references)
    parameters = Parameters(lam=lam)
    q_norms, r_norms = np.linalg.norm(query, axis=1), np.linalg.norm(references, axis=1)
    found = retrieve(query / q_norms[:, None], references / r_norms[:, None])
    assert len(set(found.neighbors.sum(axis=1))) > 2

    w_qr = np.zeros((n_q, n_r))
    solved = np.empty_like(query)
    for i in range(n_q):
        near = np.flatnonzero(found.neighbors[i])
        s = found.similarity[i, near]
        w_qr[i, near] = edge_weights(q_norms[i], s, r_norms[near], parameters.floor)
        drift, solved[i] = solve(
            query[i], q_norms[i], s, references[near], r_norms[near], parameters
        )
        np.testing.assert_allclose(query[i] + drift, solved[i], rtol=1e-12, atol=1e-12)

    w = np.block([[np.zeros((n_q, n_q)), w_qr], [w_qr.T, np.zeros((n_r, n_r))]])
    laplacian = np.diag(w.sum(axis=1)) - w  # Eq. 3
    l_qq, l_qr = laplacian[:n_q, :n_q], laplacian[:n_q, n_q:]  # Eq. 4
    anchoring = lam * np.eye(n_q)
    f = np.linalg.solve(l_qq + anchoring, anchoring @ query - l_qr @ references)  # Eq. 8
    np.testing.assert_allclose(solved, f, rtol=1e-12, atol=1e-12)

    def energy(moved: Matrix) -> float:  # Eq. 7
        stacked = np.vstack([moved, references])
        return float(np.trace(stacked.T @ laplacian @ stacked) + lam * ((moved - query) ** 2).sum())

    gradient = 2 * (laplacian @ np.vstack([solved, references]))[:n_q] + 2 * lam * (solved - query)
    np.testing.assert_allclose(gradient, 0, atol=1e-10 * (1 + lam))
    for _ in range(20):
        assert energy(solved + 0.01 * rng.normal(size=solved.shape)) > energy(solved)


def test_without_a_floor_a_negative_cosine_does_not_push() -> None:
    query, references = np.array([[1.0, 0.0]]), np.array([[-1.0, 0.1]])
    assert score_patches(query, references, scorer="reference", floor=0.0).energy[0] == 0
    assert score_patches(query, references, scorer="reference", floor=0.05).energy[0] > 0


def test_an_energy_has_a_value_where_f_has_no_direction() -> None:
    q = np.array([3.0, 4.0])
    nothing = np.zeros(2)
    assert non_conformity(q, -q, nothing, "cosine") == 1
    assert non_conformity(q, -q, nothing, "product") == 25


def test_small_angles_keep_their_digits() -> None:
    """1 - cos of an angle of 1e-9 is 5e-19; the textbook formula gives 0."""
    q = np.array([1.0, 0.0])
    assert non_conformity(q, q, np.array([1.0, 1e-9]), "cosine") == pytest.approx(5e-19, rel=1e-6)


def test_margin_is_how_far_the_closest_decision_is_from_flipping() -> None:
    def margin(query: list[float], *references: list[float]) -> float:
        found = score_patches([query], list(references), scorer="reference")
        assert found.margin is not None
        return float(found.margin[0])

    def turned(degrees: float) -> list[float]:
        return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]

    def gap(a: float, b: float) -> float:
        return abs(math.cos(math.radians(a)) - math.cos(math.radians(b)))

    # Anchor against runner-up, which is clearly a violator.
    assert margin(turned(0), turned(10), turned(-10.0001)) == pytest.approx(gap(10, 10.0001))
    # a_ij against s*: the second reference is 9.9999 degrees from the anchor, q is 10.
    assert margin(turned(0), turned(10), turned(19.9999)) == pytest.approx(gap(10, 9.9999))
    # The same from the other side: a violator that nearly is a neighbour.
    assert margin(turned(0), turned(10), turned(20.0001)) == pytest.approx(gap(10, 10.0001))
    # Last neighbour (14.9999 degrees) against first violator (15 degrees, the other way).
    rivals = (turned(10), turned(14.9999), turned(-15))
    assert margin(turned(0), *rivals) == pytest.approx(gap(15, 14.9999))
    # Ties and duplicates are undecided by definition.
    assert margin(turned(0), turned(10), turned(10)) == 0


def test_margin_also_says_where_f_cancels() -> None:
    """The direction of f is uncertain where lambda q and an opposed reference nearly cancel.

    Float32 cannot represent the direction of what is left.
    """
    query, references = np.array([[3.0, 4.0]]), np.array([[-30.0, -40.0]])
    balance = 0.05 * (2 * 5 * 50 / 55) * 50 / 5
    for lam, expected in [(balance * 1.01, 0.005e-4), (balance * 3, 0.5e-4)]:
        found = score_patches(query, references, lam, scorer="reference")
        assert found.margin is not None
        assert found.margin[0] == pytest.approx(expected, rel=0.01)


def test_zero_norm_references_are_dropped_and_anchors_count_the_original_rows() -> None:
    rows = np.random.default_rng(5).normal(size=(8, 4))
    references = rows.copy()
    references[[0, 3, 6]] = 0
    found = score_patches(rows, references, scorer="reference")
    kept = [1, 2, 4, 5, 7]
    assert found.anchor[kept].tolist() == kept
    without = score_patches(rows, references[kept], scorer="reference")
    np.testing.assert_array_equal(found.energy, without.energy)
    assert References.of(references)[1].tolist() == kept


def test_whole_numbers_and_lists_are_taken() -> None:
    query, references = [[1, 2], [3, 1]], [[1, 1], [2, 5], [4, 0]]
    whole = score_patches(query, references, scorer="reference")
    real = score_patches(np.array(query, float), np.array(references, float), scorer="reference")
    np.testing.assert_array_equal(whole.energy, real.energy)


GOOD = np.random.default_rng(1).normal(size=(5, 3))


def spoiled(value: float, row: int = 2) -> Matrix:
    rows = GOOD.copy()
    rows[row, 1] = value
    return rows


@pytest.mark.parametrize("scorer", ["reference", "onnx"])
@pytest.mark.parametrize(
    ("query", "references", "what"),
    [
        (spoiled(np.nan), GOOD, "query patch 2 contains NaN or infinity"),
        (spoiled(np.inf, 4), GOOD, "query patch 4 contains NaN or infinity"),
        (GOOD, spoiled(np.nan), "reference patch 2 contains NaN or infinity"),
        (GOOD, spoiled(-np.inf, 0), "reference patch 0 contains NaN or infinity"),
        (GOOD, GOOD[:0], "there is no reference patch"),
        (GOOD, 0 * GOOD, "there is no reference patch"),
        (np.vstack([GOOD, 0 * GOOD[:1]]), GOOD, "query patch 5 has a zero norm"),
        (1e12 * GOOD, GOOD, "query patch 0 has norm"),
        (GOOD, 1e-12 * GOOD, "reference patch 0 has norm"),
        (GOOD[:, :2], GOOD, "shape (5, 2), the bank has 3 features per patch"),
        (GOOD[0], GOOD, "shape (3,)"),
        (GOOD, GOOD[0], "reference features are float64 of shape (3,)"),
        (GOOD[None], GOOD, "shape (1, 5, 3)"),
    ],
)
def test_what_cannot_be_scored_is_an_error(
    scorer: str, query: Matrix, references: Matrix, what: str
) -> None:
    with pytest.raises(ScoringError) as error:
        score_patches(query, references, scorer=scorer)
    assert what in error.value.what
    assert error.value.hint


@pytest.mark.parametrize("scorer", ["reference", "onnx", "auto"])
def test_no_query_gives_no_scores(scorer: str) -> None:
    found = score_patches(GOOD[:0], GOOD, scorer=scorer)
    for values in (found.energy, found.anchor, found.similarity, found.neighbors):
        assert values.shape == (0,)
    assert found.anchor.dtype == np.int64


@pytest.mark.parametrize("lam", [0.0, -1.0, math.nan, math.inf, 1e-50, 1e39])
def test_lambda_is_a_positive_number_that_float32_can_hold(lam: float) -> None:
    with pytest.raises(UsageError, match="lambda is"):
        score_patches(GOOD, GOOD, lam=lam, scorer="reference")


@pytest.mark.parametrize("floor", [-0.1, 1.0, math.nan])
def test_floor_lies_in_its_range(floor: float) -> None:
    with pytest.raises(UsageError, match="floor is"):
        score_patches(GOOD, GOOD, floor=floor, scorer="reference")


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown scorer 'cuda13'.*reference"):
        score_patches(GOOD, GOOD, scorer="cuda13")
    with pytest.raises(UsageError, match=r"unknown metric 'l1'.*product"):
        score_patches(GOOD, GOOD, metric="l1", scorer="reference")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"unknown pooling 'mean'.*top5"):
        pool(np.ones(3), "mean")


def test_auto_says_what_it_chose() -> None:
    here = why_not() is None
    expected = ("native", "the native library is present")
    assert choose_scorer() == (expected if here else ("onnx", "onnxruntime is installed"))
    bank, _ = References.of(GOOD)
    assert open_scorer("auto", bank).name == choose_scorer()[0]
    assert open_scorer("reference", bank).name == "reference"


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=12))
@settings(derandomize=True, deadline=None)
def test_pooling(values: list[float]) -> None:
    energy = np.array(values)
    top = sorted(values)[-5:]
    assert pool(energy) == pool(energy, "max") == max(values)
    assert pool(energy, "top5") == pytest.approx(sum(top) / len(top))
    assert POOLINGS == ("max", "top5", "smooth")


def test_pooling_of_nothing_is_an_error() -> None:
    with pytest.raises(ScoringError, match="no patch is left"):
        pool(np.zeros(0))
    with pytest.raises(ScoringError, match="no patch is left"):
        pool(np.ones((2, 2)), "smooth", np.zeros((2, 2), np.bool_))


def literally_smoothed(energy: Matrix, scored: NDArray[np.bool_]) -> Matrix:
    """Average each scored patch with its scored neighbors, by the Gaussian's definition."""
    out = np.zeros(energy.shape)
    for row, col in zip(*np.nonzero(scored), strict=True):
        near = [
            (math.exp(-((r - row) ** 2 + (c - col) ** 2) / (2 * 0.8**2)), energy[r, c])
            for r, c in zip(*np.nonzero(scored), strict=True)
            if max(abs(r - row), abs(c - col)) <= 1
        ]
        out[row, col] = math.fsum(w * e for w, e in near) / math.fsum(w for w, _ in near)
    return out


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**32 - 1), st.sampled_from([0.3, 1.0]))
@settings(derandomize=True, deadline=None)
def test_smooth_pooling_is_its_definition(rows: int, cols: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    scored = rng.random((rows, cols)) < share
    scored[rng.integers(rows), rng.integers(cols)] = True
    energy = np.where(scored, rng.exponential(size=(rows, cols)), np.nan)
    expected = literally_smoothed(energy, scored)
    smoothed = smooth_grid(energy, scored)
    np.testing.assert_allclose(smoothed, expected, rtol=1e-14)
    assert pool(energy, "smooth", scored) == smoothed.max()
    assert smooth_grid(energy.astype(np.float32), scored).dtype == np.float32
    flat = np.full((rows, cols), np.float32(0.1))
    assert pool(flat, "smooth", scored) == np.float32(0.1)


def test_smooth_pooling_prefers_a_defect_of_many_patches_to_a_single_one() -> None:
    single, wide = np.zeros((6, 6)), np.zeros((6, 6))
    single[2, 2], wide[1:4, 1:4] = 3.0, 1.0
    assert pool(single) > pool(wide)
    assert pool(single, "smooth") < pool(wide, "smooth") == pytest.approx(1)


def test_smooth_pooling_needs_the_grid() -> None:
    with pytest.raises(UsageError, match=r"shape \(4,\).*no grid; pass rows x columns"):
        pool(np.ones(4), "smooth")
