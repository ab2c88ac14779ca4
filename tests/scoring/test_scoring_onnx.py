"""The ONNX scorer agrees with the reference, on ordinary features and on hard cases."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from agreement import assert_agrees
from command_line import PATIENCE
from scorer_cases import EVERY_METRIC, Features, HardCases, both, scattered

from anoco_edge.machine import cores
from anoco_edge.scoring import Metric, Parameters, References, Scores, open_scorer, score_patches
from anoco_edge.scoring.onnx_scorer import MEMORY_MB, OnnxScorer, scoring_model
from anoco_edge_export.scoring_graph import retrieval_graph, scoring_graph, solve_graph


class TestHardCases(HardCases):
    scorer = "onnx"


def test_agrees_at_full_size() -> None:
    """At 768 px and patch 16, four references are scored with 5 % outliers among the queries.

    Some of these are aliens, which have the whole bank as neighbours.
    """
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
    got, expected = both("onnx", query, bank, "product")
    assert_agrees(got, expected, query, metric="product", max_undecided=0.01)
    counts = expected.neighbors
    print(f"neighbours: median {np.median(counts)}, 95 % {np.percentile(counts, 95)}")
    assert counts.max() == n_r and np.median(counts) <= 10
    good = np.setdiff1d(np.arange(n_q), outliers)
    assert expected.energy[outliers].min() > expected.energy[good].max()


def test_a_small_budget_changes_nothing_but_the_chunks() -> None:
    rng = np.random.default_rng(8)
    query, bank = scattered(rng, 101, 2000, 32)
    references, _ = References.of(bank)
    whole = OnnxScorer(references, Parameters())
    small = OnnxScorer(references, Parameters(), memory_mb=1)
    assert whole.chunks(101) <= cores() < small.chunks(101) < 101
    tiny = OnnxScorer(References.of(np.tile(bank, (50, 1)))[0], Parameters(), memory_mb=1)
    assert tiny.chunks(101) == 101  # a row larger than the budget is still processed
    one, many = whole.score(query), small.score(query)
    np.testing.assert_array_equal(one.anchor, many.anchor)
    np.testing.assert_array_equal(one.neighbors, many.neighbors)
    # They are not equal bit for bit, because matrix products of other shapes may sum in another
    # order.
    np.testing.assert_allclose(one.energy, many.energy, rtol=1e-5)
    by_name = open_scorer("onnx", references, memory_mb=1)
    assert isinstance(by_name, OnnxScorer) and by_name.chunks(101) == small.chunks(101)


# It runs in its own process, because the peak of this one may be higher. VmHWM is used because a
# child inherits ru_maxrss from its parent.
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
    assert 0.3 * MEMORY_MB < extra < MEMORY_MB  # the budget is used for speed, and not exceeded


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
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def run_whole(query: np.ndarray, bank: np.ndarray, metric: str) -> Scores:
    """Run scoring.onnx in one piece, as TensorRT and other runtimes do."""
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
    elif case == "crowd":
        # Nearly one direction, with queries far from it, so everything is a neighbour.
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
    """On a uniform surface, every reference is a neighbour of a defect, and of nothing else."""
    rng = np.random.default_rng(11)
    surface = rng.normal(size=64)
    query, bank = (
        (surface + 0.3 * rng.normal(size=(n, 64))).astype(np.float32) for n in (200, 900)
    )
    query[::20] = rng.normal(size=(10, 64))
    got, expected = both("onnx", query, bank, "product")
    assert np.median(expected.neighbors) < 10 and (expected.neighbors > 500).sum() >= 5
    assert_agrees(got, expected, query, metric="product", max_undecided=0.2)
