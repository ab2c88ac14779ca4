"""The ONNX scorer agrees with the reference, on features as they come and on hard cases."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anoco_edge.machine import cores
from anoco_edge.scoring import Metric, Parameters, References, Scores, open_scorer, score_patches
from anoco_edge.scoring.onnx_scorer import MEMORY_MB, OnnxScorer, scoring_model
from anoco_edge_export.scoring_graph import retrieval_graph, scoring_graph, solve_graph
from tests.agreement import assert_agrees

Features = NDArray[np.float32]
Bank = NDArray[np.float32] | NDArray[np.float16]
EVERY_METRIC: tuple[Metric, ...] = get_args(Metric)


def both(
    query: Features, bank: Bank, metric: Metric, lam: float = 1.0, floor: float = 0.05
) -> tuple[Scores, Scores]:
    got, expected = (
        score_patches(query, bank, lam, metric, scorer, floor=floor)
        for scorer in ("onnx", "reference")
    )
    return got, expected


def check(
    query: Features,
    bank: Bank,
    *,
    lam: float = 1.0,
    floor: float = 0.05,
    wild: bool = False,
    max_undecided: float = 1.0,
) -> None:
    """Agreement in every metric. `wild` norms: the scale is that of f~, see `assert_agrees`."""
    scores = {metric: both(query, bank, metric, lam, floor) for metric in EVERY_METRIC}
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


def test_agrees_at_full_size() -> None:
    """768 px, patch 16, four references; 5 % of the queries are outliers, some of them aliens that
    have the whole bank for neighbours."""
    rng = np.random.default_rng(2)
    n_q, n_r, dim, clusters = 2304, 9216, 1024, 400
    shared = np.ones(dim, np.float32)
    centres = shared + rng.normal(size=(clusters, dim)).astype(np.float32)

    def patches(count: int, noise: float) -> Features:
        rows = centres[rng.integers(clusters, size=count)]
        rows = rows + noise * rng.standard_normal((count, dim), dtype=np.float32)
        return (rows * rng.uniform(0.8, 1.25, size=(count, 1))).astype(np.float32)

    bank, query = patches(n_r, 0.40).astype(np.float16), patches(n_q, 0.42)
    outliers = rng.choice(n_q, n_q // 20, replace=False)
    query[outliers] = shared + rng.normal(size=(len(outliers), dim))
    query[outliers[:4]] -= shared
    got, expected = both(query, bank, "product")
    assert_agrees(got, expected, query, metric="product", max_undecided=0.01)
    counts = expected.neighbors
    print(f"neighbours: median {np.median(counts)}, 95 % {np.percentile(counts, 95)}")
    assert counts.max() == n_r and np.median(counts) <= 10
    good = np.setdiff1d(np.arange(n_q), outliers)
    assert expected.energy[outliers].min() > expected.energy[good].max()


@st.composite
def generator(draw: st.DrawFn) -> tuple[np.random.Generator, int, int, int]:
    seed = draw(st.integers(0, 2**32 - 1))
    sizes = draw(st.integers(1, 12)), draw(st.integers(1, 40)), draw(st.integers(1, 16))
    return np.random.default_rng(seed), *sizes


def lattice(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    """Whole numbers from -1 to 2: ties everywhere, some within rounding of being ties."""
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
    """Queries that are references, or within rounding of one, or a multiple of one."""
    _, bank = scattered(rng, n_q, n_r, dim)
    query = bank[rng.integers(n_r, size=n_q)] * rng.choice([1, 1 + 1e-6, 3], size=(n_q, 1))
    return query.astype(np.float32), bank


def opposed(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    query, bank = scattered(rng, n_q, n_r, dim)
    size = min(n_q, n_r)
    bank[:size] = -query[:size] * rng.choice([1, 0.25, 20], size=(size, 1))
    return query, bank


def alien(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    """Queries at a right angle to every reference."""
    query, bank = scattered(rng, n_q, n_r, dim)
    nothing_q, nothing_r = np.zeros_like(query), np.zeros_like(bank)
    return np.hstack([query, nothing_q]), np.hstack([nothing_r, bank])


def everything_near(rng: Any, n_q: int, n_r: int, dim: int) -> tuple[Features, Features]:
    query, bank = scattered(rng, n_q, n_r, dim)
    return query, (50 + bank).astype(np.float32)


KINDS = [
    lattice,
    scattered,
    duplicated,
    one_reference,
    one_query,
    equal,
    opposed,
    alien,
    everything_near,
]


@pytest.mark.parametrize("kind", KINDS)
@given(
    generator(),
    st.sampled_from([1e-3, 1.0, 100.0]),
    st.sampled_from([0.0, 0.05]),
    st.booleans(),
)
@settings(derandomize=True, deadline=None, max_examples=30)
def test_agrees_on_hard_cases(kind: Any, made: Any, lam: float, floor: float, half: bool) -> None:
    query, bank = kind(*made)
    check(query, bank.astype(np.float16) if half else bank, lam=lam, floor=floor)


@pytest.mark.parametrize("kind", KINDS)
@given(generator(), st.sampled_from([1e-24, 1.0, 100.0]), st.sampled_from([0.0, 0.05]))
@settings(derandomize=True, deadline=None, max_examples=30)
def test_agrees_with_wild_norms(kind: Any, made: Any, lam: float, floor: float) -> None:
    rng = made[0]
    query, bank = kind(*made)
    query, bank = (
        (rows * 10 ** rng.uniform(-3, 3, size=(len(rows), 1))).astype(np.float32)
        for rows in (query, bank)
    )
    check(query, bank, lam=lam, floor=floor, wild=True)


def test_most_rows_of_scattered_features_are_decided() -> None:
    """The hard cases may leave rows out; ordinary ones must not."""
    for seed in range(20):
        check(*scattered(np.random.default_rng(seed), 40, 60, 12), max_undecided=0.03)


# Whole rows of length 2, 4 or 8: every cosine is exact in float32 too, so nothing is undecided.
SQUARES = [(2, 0, 0, 0, 0), (1, 1, 1, 1, 0), (4, 0, 0, 0, 0), (3, 2, 1, 1, 1), (6, 4, 2, 2, 2)]


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 60))
@settings(derandomize=True, deadline=None, max_examples=100)
def test_ties_are_decided_alike(seed: int, n_q: int, n_r: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.permuted(np.array(SQUARES)[rng.integers(5, size=n_q + n_r)], axis=1)
    rows = rows * rng.choice([1, 1, 1, -1], size=rows.shape)
    query, bank = rows[:n_q].astype(np.float32), rows[n_q:].astype(np.float32)
    for metric in EVERY_METRIC:
        got, expected = both(query, bank, metric)
        assert_agrees(got, expected, query, metric=metric, eps=-1)
        np.testing.assert_array_equal(got.similarity, expected.similarity)


def test_the_floor_also_holds_an_anchor_that_is_left_alone() -> None:
    """Both references are at a right angle to q and opposed to each other: a tie that violates."""
    query = np.array([[2, 0, 0]], np.float32)
    bank = np.array([[0, 4, 0], [0, -4, 0]], np.float32)
    for metric in EVERY_METRIC:
        got, expected = both(query, bank, metric)
        assert_agrees(got, expected, query, metric=metric, eps=-1)
        assert got.neighbors[0] == 1 and got.energy[0] > 1e-3


def test_an_f_of_length_zero_has_turned_by_a_right_angle() -> None:
    """w = floor 2 |q| |r| / (|q| + |r|) = 1/2 = lambda, so lambda q + w r is exactly zero."""
    query, bank = np.array([[1, 0]], np.float32), np.array([[-1, 0]], np.float32)
    for scorer in ("onnx", "reference"):
        for metric in EVERY_METRIC:
            assert score_patches(query, bank, 0.5, metric, scorer, floor=0.5).energy[0] == 1


@pytest.mark.parametrize("exponent", [-8, -5, 6, 8, 9])
def test_long_and_short_features_neither_overflow_nor_vanish(exponent: int) -> None:
    """d_i |r| may pass 1e19, whose square float32 cannot hold."""
    rng = np.random.default_rng(4)
    query, bank = everything_near(rng, 6, 3000, 8)
    scale = np.float32(10.0**exponent / 150)
    for lam in (1e-24, 1.0, 1e24):
        check(query * scale, bank * scale, lam=lam, max_undecided=0.5)


@pytest.mark.parametrize("lam", [1e-24, 1.0, 1e24])
def test_without_a_floor_what_is_not_pulled_does_not_turn(lam: float) -> None:
    query, bank = np.array([[1, 0]], np.float32), np.array([[-1, 1e-5]], np.float32)
    for metric in EVERY_METRIC:
        assert score_patches(query, bank, lam, metric, "onnx", floor=0.0).energy[0] == 0


def test_zero_norm_references_are_dropped_and_anchors_count_the_original_rows() -> None:
    query, bank = scattered(np.random.default_rng(6), 30, 50, 8)
    bank[[0, 7, 20, 49]] = 0
    got, expected = both(query, bank, "product")
    assert_agrees(got, expected, query, metric="product")
    assert not set(got.anchor) & {0, 7, 20, 49}
    own = score_patches(bank[[1, 8, 48]], bank, scorer="onnx")
    assert own.anchor.tolist() == [1, 8, 48]


def test_a_small_budget_changes_nothing_but_the_chunks() -> None:
    rng = np.random.default_rng(8)
    query, bank = scattered(rng, 101, 2000, 32)
    references, _ = References.of(bank)
    whole = OnnxScorer(references, Parameters())
    small = OnnxScorer(references, Parameters(), memory_mb=1)
    assert whole.chunks(101) <= cores() < small.chunks(101) < 101
    tiny = OnnxScorer(References.of(np.tile(bank, (50, 1)))[0], Parameters(), memory_mb=1)
    assert tiny.chunks(101) == 101  # a row larger than the budget is still a row
    one, many = whole.score(query), small.score(query)
    np.testing.assert_array_equal(one.anchor, many.anchor)
    np.testing.assert_array_equal(one.neighbors, many.neighbors)
    # Not bit for bit: a matrix product of other shape may add up in another order.
    np.testing.assert_allclose(one.energy, many.energy, rtol=1e-5)
    by_name = open_scorer("onnx", references, memory_mb=1)
    assert isinstance(by_name, OnnxScorer) and by_name.chunks(101) == small.chunks(101)


# In a process of its own, because the peak of this one is behind it. VmHWM, not ru_maxrss: a child
# inherits the latter from its parent.
_PEAK = """
from pathlib import Path
import numpy as np
from anoco_edge.scoring import References, open_scorer
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
rng = np.random.default_rng(0)
query = rng.standard_normal((1000, 32), dtype=np.float32)
bank, _ = References.of(rng.standard_normal((36864, 32), dtype=np.float32))
scorer = open_scorer("onnx", bank)
scorer.score(query[:1])
before = peak()
scorer.score(query)
print(peak() - before)
"""


def test_memory_stays_within_the_stated_budget() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PEAK], check=True, capture_output=True, text=True, timeout=120
    )
    extra = int(done.stdout) / 1e6
    print(f"extra memory: {extra:.0f} MB of {MEMORY_MB}")
    assert 0.3 * MEMORY_MB < extra < MEMORY_MB  # used, for speed, and not exceeded


def test_the_shipped_graph_is_what_the_exporter_writes() -> None:
    assert scoring_model() == scoring_graph()
    assert scoring_model("retrieval") == retrieval_graph()
    assert scoring_model("solve") == solve_graph()


def test_the_graph_is_standard_and_loads_on_old_devices() -> None:
    model = onnx.load_from_string(scoring_model())
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 10
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 18)]
    assert {node.domain for node in model.graph.node} == {""}
    used = {node.op_type for node in model.graph.node}
    assert not used & {"Sort", "TopK", "NonZero", "Loop", "If", "Scan", "Unique"}
    inputs = {
        i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]
        for i in model.graph.input
    }
    assert inputs["query"] == ["patches", "dim"]
    assert inputs["reference_units"] == ["bank", "dim"]
    assert {i.type.tensor_type.elem_type for i in model.graph.input} == {onnx.TensorProto.FLOAT}


def test_making_the_graph_needs_no_torch() -> None:
    code = (
        "import sys; from anoco_edge_export.scoring_graph import scoring_graph; scoring_graph();"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def run_whole(query: np.ndarray, bank: np.ndarray, metric: str) -> Scores:
    """scoring.onnx in one piece, as TensorRT and other runtimes run it."""
    references, _ = References.of(bank)
    session = onnxruntime.InferenceSession(scoring_model(), providers=["CPUExecutionProvider"])
    units = bank / np.linalg.norm(bank.astype(np.float64), axis=1, keepdims=True)
    feeds = {
        "query": query,
        "reference_units": units.astype(np.float32),
        "reference_norms": references.norms,
        "lambda": np.array(1, np.float32),
        "floor": np.array(0.05, np.float32),
    }
    return Scores(*session.run([metric, "anchor", "similarity", "neighbors"], feeds))


@pytest.mark.parametrize("metric", EVERY_METRIC)
@pytest.mark.parametrize("case", ["scattered", "ties", "alone", "crowd", "itself", "opposed"])
def test_the_whole_graph_says_what_its_halves_say(case: str, metric: Metric) -> None:
    rng = np.random.default_rng(5)
    query, bank = (a.astype(np.float32) for a in scattered(rng, 60, 400, 24))
    if case == "ties":
        query, bank = (rng.integers(1, 3, (n, 4)).astype(np.float32) for n in (40, 60))
    elif case == "alone":
        query, bank = query[:1], bank[:1]
    elif case == "crowd":  # nearly one direction, queries far from it: everything is a neighbour
        bank = (1 + 0.01 * rng.normal(size=(400, 24))).astype(np.float32)
        query = (query + 0.5).astype(np.float32)
    elif case == "itself":
        query = bank[:60].copy()
    elif case == "opposed":
        query = -bank[:60]
    whole = run_whole(query, bank, metric)
    halves = score_patches(query, bank, metric=metric, scorer="onnx")
    expected = score_patches(query, bank, metric=metric, scorer="reference")
    decided = expected.margin > 2e-6
    np.testing.assert_array_equal(whole.anchor[decided], halves.anchor[decided])
    np.testing.assert_array_equal(whole.neighbors[decided], halves.neighbors[decided])
    np.testing.assert_allclose(
        whole.energy[decided], halves.energy[decided], rtol=1e-4, atol=1e-6 * halves.energy.max()
    )
    assert_agrees(whole, expected, query, metric=metric, max_undecided=1.0)
    if case == "crowd":
        assert np.median(whole.neighbors) > 100


def test_a_few_alien_rows_wait_for_the_end_and_come_out_right() -> None:
    """On a uniform surface every reference is a neighbour of a defect, and of nothing else."""
    rng = np.random.default_rng(11)
    surface = rng.normal(size=64)
    query, bank = (
        (surface + 0.3 * rng.normal(size=(n, 64))).astype(np.float32) for n in (200, 900)
    )
    query[::20] = rng.normal(size=(10, 64))
    got, expected = both(query, bank, "product")
    assert np.median(expected.neighbors) < 10 and (expected.neighbors > 500).sum() >= 5
    assert_agrees(got, expected, query, metric="product", max_undecided=0.2)
