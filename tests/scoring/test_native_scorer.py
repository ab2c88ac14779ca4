"""The native scorer agrees with the reference on every path through its code.

The library is built from runtime/ once, into a temporary folder. Where that is impossible, the
tests are reported as not executed. ANOCO_EDGE_LIBRARY names a library that is already built.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import assert_agrees
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scorer_cases import EVERY_METRIC, Features, HardCases, line_of_parts

from anoco_edge.diagnostics.bench.features import Size, all_neighbors, clustered, isotropic
from anoco_edge.diagnostics.bench.scoring import bench_scoring
from anoco_edge.errors import EnvironmentMissingError, ScoringError, UsageError
from anoco_edge.native import library
from anoco_edge.native.library import VARIABLE
from anoco_edge.scoring import (
    Metric,
    Parameters,
    References,
    Scores,
    choose_scorer,
    native,
    open_scorer,
    score_patches,
)
from anoco_edge.scoring.native import NativeScorer

pytestmark = pytest.mark.usefixtures("use_native")

FIELDS = ("energy", "anchor", "similarity", "neighbors")


def both(query: Features, bank: References, **options: Any) -> tuple[Scores, Scores]:
    """Return the scores of the library, with the given options, and those of the reference."""
    return (
        NativeScorer(bank, Parameters(), **options).score(query),
        open_scorer("reference", bank).score(query),
    )


class TestHardCases(HardCases):
    scorer = "native"


def test_ties_are_decided_alike_when_references_are_left_out() -> None:
    """Each reference lies on one of sixteen axes, many times.

    All that tie with the anchor count.
    """
    rng = np.random.default_rng(1)
    axes = 4 * np.eye(16, dtype=np.float32)
    query, bank = axes[rng.integers(16, size=40)], axes[rng.integers(16, size=700)]
    query[::3] += 3 * axes[5]
    references, _ = References.of(bank)
    for directions in (0, 16):
        got, expected = both(query, references, directions=directions)
        np.testing.assert_array_equal(got.anchor, expected.anchor)
        np.testing.assert_array_equal(got.neighbors, expected.neighbors)


def test_a_crowd_may_be_found_among_few_references_that_are_left() -> None:
    """Of 600 references, 118 are nearest, and five more neighbours are less similar.

    That is few enough to leave the others out, but more than are handled one by one. The five are
    less similar than the bounds of four violators.
    """
    rng = np.random.default_rng(3)
    axis = np.eye(24)
    aside = axis[10:16].sum(axis=0) / np.sqrt(6)
    near, edge = np.tile(axis[0], (118, 1)), np.tile(0.906 * axis[0] - 0.423 * axis[1], (5, 1))
    violators = np.tile(0.7 * axis[0] + 0.555 * axis[1] + 0.45 * axis[20], (4, 1))
    others = axis[np.arange(473) % 9 + 1]
    bank = np.vstack([near, edge, violators, others])
    query = axis[np.arange(30) % 9 + 1]  # for these, leaving references out saves time
    query[:3] = 0.866 * axis[0] + 0.5 * aside
    bank, query = (
        (rows + 0.01 * rng.normal(size=rows.shape)).astype(np.float32) for rows in (bank, query)
    )
    references, _ = References.of(bank)
    for directions in (0, 10):
        got, expected = both(query, references, directions=directions)
        assert (expected.neighbors[:3] == 123).all()
        assert_agrees(got, expected, query, metric="product", max_undecided=0.2)


# Cover every code path: few neighbors, rows with very many, references left out early.


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("directions", [0, 40, -1])
@pytest.mark.parametrize("metric", EVERY_METRIC)
def test_agrees_on_a_line_of_parts(metric: Metric, directions: int, half: bool) -> None:
    query, bank = line_of_parts(half)
    parameters = Parameters(metric=metric)
    got = NativeScorer(bank, parameters, directions=directions).score(query)
    expected = open_scorer("reference", bank, parameters).score(query)
    assert_agrees(got, expected, query, metric=metric, max_undecided=0.01)
    assert expected.neighbors.max() == 1500 and np.median(expected.neighbors) <= 10


def few_far_away(query: Features, bank: Features) -> None:
    """Almost every reference is a neighbour; the others lie in all parts of the bank."""
    bank[::97] = np.random.default_rng(5).standard_normal(bank[::97].shape)


def two_crowds(query: Features, bank: Features) -> None:
    bank[len(bank) // 2 :, ::2] *= -1


def opposite_crowds(query: Features, bank: Features) -> None:
    """The directions cancel, so that their mean says nothing; some queries are references."""
    bank[len(bank) // 2 :] = -bank[: len(bank) - len(bank) // 2]
    query[::3] = bank[: len(query[::3])]


def many_of_each(query: Features, bank: Features) -> None:
    """Every reference occurs five times, so the anchor ties with four others."""
    bank[:] = np.repeat(bank[: -(-len(bank) // 5)], 5, axis=0)[: len(bank)]


def ties_with_a_violator(query: Features, bank: Features) -> None:
    """Mirrored references are as similar to these queries as the originals, but not alike."""
    query[:, 1::2] = 0
    bank[1::4] = bank[::4][: len(bank[1::4])] * np.where(np.arange(bank.shape[1]) % 2, -1, 1)


def some_know_the_bank(query: Features, bank: Features) -> None:
    """Rows with few and with all neighbours share a tile."""
    query[::2] = 0.9 * bank[: len(query[::2])] + 0.1 * query[::2]


def nothing_else(query: Features, bank: Features) -> None:
    pass


TAILS = (
    nothing_else,
    few_far_away,
    two_crowds,
    opposite_crowds,
    many_of_each,
    ties_with_a_violator,
    some_know_the_bank,
)


@pytest.mark.parametrize("change", TAILS)
@pytest.mark.parametrize("size", [Size(70, 700, 300), Size(40, 1030, 24), Size(9, 33, 16)])
def test_agrees_where_most_are_neighbours(change: Any, size: Size) -> None:
    query, bank = all_neighbors(size)
    change(query, bank)
    for half in (False, True):
        references, _ = References.of(bank.astype(np.float16) if half else bank)
        got, expected = both(query, references, directions=0)
        ties = change in (many_of_each, ties_with_a_violator)
        most = 1.0 if ties else 0.2
        assert_agrees(got, expected, query, metric="product", max_undecided=most)
    if change in (nothing_else, few_far_away) and size.dim == 300:
        assert expected.neighbors.max() > 600


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(33, 900), st.sampled_from(TAILS))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_a_row_with_many_neighbours_has_the_same_bits_alone(
    seed: int, n_q: int, n_r: int, change: Any
) -> None:
    """Rows with very many neighbours are finished together; nothing of one gets into another."""
    rng = np.random.default_rng(seed)
    query, bank = all_neighbors(Size(n_q, n_r, int(rng.integers(2, 300))))
    change(query, bank)
    query *= rng.uniform(0.2, 5, size=(n_q, 1)).astype(np.float32)
    half = bool(rng.integers(2))
    references, _ = References.of(bank.astype(np.float16) if half else bank)
    together, expected = both(query, references, directions=0, threads=1)
    assert_agrees(together, expected, query, metric="product", max_undecided=1.0)
    scorer = NativeScorer(references, Parameters(), directions=0, threads=1)
    for i in {0, n_q // 2, n_q - 1}:
        alone = scorer.score(query[i : i + 1])
        for name in FIELDS:
            assert getattr(alone, name).tobytes() == getattr(together, name)[i : i + 1].tobytes()


def test_agrees_with_one_reference_whatever_the_query() -> None:
    query, bank = all_neighbors(Size(50, 1, 40))
    query[25:] *= -1
    got, expected = both(query, References.of(bank)[0], directions=0)
    assert_agrees(got, expected, query, metric="product", max_undecided=0)
    assert (got.neighbors == 1).all() and (got.anchor == 0).all()


SIZES = [(2304, False), (9216, False), (36864, True)]


@pytest.mark.parametrize(("references", "half"), SIZES)
def test_agrees_at_full_size(references: int, half: bool) -> None:
    """A 768 px frame of DINOv3-L (patch 16) is scored against 1, 4 and 16 references.

    The reference scorer would take minutes, so it gets every 47th query, outliers and aliens among
    them.
    """
    query, bank = line_of_parts(half, queries=2304, references=references, dim=1024)
    some = np.arange(0, 2304, 47)
    got = NativeScorer(bank, Parameters()).score(query)
    expected = open_scorer("reference", bank).score(query[some])
    found = Scores(*(getattr(got, name)[some] for name in FIELDS))
    assert_agrees(found, expected, query[some], metric="product", max_undecided=0.05)
    assert expected.neighbors.max() == references and np.median(expected.neighbors) <= 10


@pytest.mark.parametrize("directions", [0, 40, 64])
def test_the_same_bits_whatever_the_threads(directions: int) -> None:
    query, bank = line_of_parts()
    one, *others = (
        NativeScorer(bank, Parameters(), threads=threads, directions=directions)
        for threads in (1, 2, 3, 5)
    )
    first = one.score(query)
    for scores in [other.score(query) for other in (*others, others[0])]:
        for name in FIELDS:
            assert getattr(first, name).tobytes() == getattr(scores, name).tobytes()


def test_the_same_bits_whatever_the_threads_in_many_tiles() -> None:
    """Half of the queries resemble nothing, so only some tiles leave references out."""
    query, bank = line_of_parts(queries=600, references=3000)
    query[300:] = np.random.default_rng(4).normal(size=query[300:].shape)
    for memory_mb in (2, 4):
        first, *others = (
            NativeScorer(bank, Parameters(), threads=n, directions=64, memory_mb=memory_mb)
            for n in (1, 2, 3, 9)
        )
        expected = first.score(query)
        for scores in [other.score(query) for other in others]:
            for name in FIELDS:
                assert getattr(expected, name).tobytes() == getattr(scores, name).tobytes()


def test_a_small_budget_changes_nothing_but_the_tiles() -> None:
    query, bank = line_of_parts()
    whole, small = (
        NativeScorer(bank, Parameters(), memory_mb=mb, directions=0).score(query) for mb in (48, 1)
    )
    assert whole.energy.tobytes() == small.energy.tobytes()
    assert whole.neighbors.tobytes() == small.neighbors.tobytes()


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 400), st.integers(1, 30))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_leaving_references_out_does_not_show(seed: int, n_q: int, n_r: int, clusters: int) -> None:
    """Any number of directions, too few or too many, gives the result of all products."""
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(2, 40))
    centres = rng.normal(size=(clusters, dim))
    query, bank = (
        centres[rng.integers(clusters, size=n)] + rng.uniform(0, 0.3) * rng.normal(size=(n, dim))
        for n in (n_q, n_r)
    )
    references, _ = References.of(bank.astype(np.float32))
    features = query.astype(np.float32)
    expected = open_scorer("reference", references).score(features)
    got = NativeScorer(references, Parameters(), directions=int(rng.integers(1, dim + 1)))
    assert_agrees(got.score(features), expected, features, metric="product", max_undecided=1)


@pytest.mark.parametrize("kernels", ["scalar", "avx2", "avx512", "avx512bf16", "neon"])
def test_every_instruction_set_agrees(kernels: str) -> None:
    """It runs in a process of its own, because the choice is made once."""
    code = (
        "from agreement import assert_agrees\n"
        "from anoco_edge.native import library\n"
        "from anoco_edge.scoring import open_scorer\n"
        "from scorer_cases import line_of_parts\n"
        "print(library.load_library().anoco_kernels().decode())\n"
        "for half in (False, True):\n"
        "    query, bank = line_of_parts(half)\n"
        "    got, expected = (open_scorer(n, bank).score(query) for n in ('native', 'reference'))\n"
        "    assert_agrees(got, expected, query, metric='product', max_undecided=0.01)\n"
    )
    environment = {**os.environ, "ANOCO_EDGE_KERNELS": kernels}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if done.stdout.split()[0] != kernels:
        pytest.skip(f"this processor does not run {kernels}")


def test_products_of_rounded_numbers_do_not_change_a_bit() -> None:
    """Half of the cases project the bank too. Each instruction set has a process of its own."""
    code = (
        "import hashlib\n"
        "from anoco_edge.diagnostics.bench.features import SYNTHETIC, Size\n"
        "from anoco_edge.native import library\n"
        "from anoco_edge.scoring import Parameters, References\n"
        "from anoco_edge.scoring.native import NativeScorer\n"
        "from scorer_cases import line_of_parts\n"
        "print(library.load_library().anoco_kernels().decode())\n"
        "cases = [line_of_parts(half) for half in (False, True)]\n"
        "for source in SYNTHETIC.values():\n"
        "    query, features = source(Size(250, 1200, 300))\n"
        "    cases.append((query, References.of(features)[0]))\n"
        "for query, bank in cases:\n"
        "    for directions in (0, 64):\n"
        "        s = NativeScorer(bank, Parameters(), directions=directions).score(query)\n"
        "        found = (s.energy, s.anchor, s.similarity, s.neighbors)\n"
        "        print(hashlib.sha256(b''.join(a.tobytes() for a in found)).hexdigest())\n"
    )
    printed = {}
    for kernels in ("avx512", "avx512bf16"):
        environment = {**os.environ, "ANOCO_EDGE_KERNELS": kernels}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        used, *printed[kernels] = done.stdout.split()
        if used != kernels:
            pytest.skip(f"this processor does not run {kernels}")
    assert len(printed["avx512"]) == 10
    assert printed["avx512"] == printed["avx512bf16"]


# The Python side.


def test_banks_are_read_where_they_are() -> None:
    for dtype in (np.float32, np.float16):
        features = np.ones((5, 4), dtype)
        scorer = NativeScorer(References.of(features)[0], Parameters())
        assert scorer._features is features
    wide = NativeScorer(References.of(np.ones((5, 4)))[0], Parameters())
    assert wide._features.dtype == np.float32


GOOD = np.array([[1.0, 2, 0], [3, 4, 1], [0, 1, 2], [2, 2, 2], [5, 1, 1]])


def spoiled(value: float) -> NDArray[np.float64]:
    rows = GOOD.copy()
    rows[2, 1] = value
    return rows


@pytest.mark.parametrize(
    ("query", "what"),
    [
        (spoiled(np.nan), "query patch 2 contains NaN or infinity"),
        (spoiled(1e300), "query patch 2 contains NaN or infinity"),
        (np.vstack([GOOD, 0 * GOOD[:1]]), "query patch 5 has a zero norm"),
        (1e12 * GOOD, "query patch 0 has norm"),
        (GOOD[:, :2], "shape (5, 2), the bank has 3 features per patch"),
        (GOOD[0], "shape (3,)"),
        (GOOD.astype(np.int64), "query features are int64"),
    ],
)
def test_what_cannot_be_scored_is_an_error(query: Any, what: str) -> None:
    scorer = open_scorer("native", References.of(GOOD)[0])
    with pytest.raises(ScoringError) as error:
        scorer.score(query)
    assert what in error.value.what and error.value.hint
    assert scorer.score(GOOD).energy.shape == (5,)  # the scorer still works


def test_a_bad_bank_is_refused_by_the_library_too() -> None:
    bank = References(np.array([[1.0, np.inf]], np.float32), np.ones(1, np.float32))
    with pytest.raises(ScoringError, match="reference patch 0 contains NaN or infinity"):
        NativeScorer(bank, Parameters())
    with pytest.raises(UsageError, match="directions is 9"):
        NativeScorer(References.of(GOOD)[0], Parameters(), directions=9)


def test_no_query_gives_no_scores() -> None:
    found = score_patches(GOOD[:0], GOOD, scorer="native")
    assert found.energy.shape == found.anchor.shape == (0,)


def test_other_threads_of_python_go_on_meanwhile() -> None:
    """The GIL is released, so this thread runs again and again while the library scores."""
    rng = np.random.default_rng(0)
    bank, _ = References.of(rng.standard_normal((6000, 512), dtype=np.float32))
    query = rng.standard_normal((3000, 512), dtype=np.float32)
    scorer = NativeScorer(bank, Parameters(), threads=1)
    with ThreadPoolExecutor(1) as pool:
        work, turns = pool.submit(scorer.score, query), 0
        while not work.done():
            time.sleep(0.002)
            turns += 1
        work.result()
    assert turns > 10


def test_auto_prefers_the_library_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_scorer() == ("native", "the native library is present")
    assert open_scorer("auto", References.of(GOOD)[0]).name == "native"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(library, "_FOLDER", Path("nowhere"))
    assert choose_scorer()[0] == "onnx"


def test_a_library_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bank, _ = References.of(GOOD)
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    with pytest.raises(EnvironmentMissingError, match="is not installed") as error:
        open_scorer("native", bank)
    assert error.value.exit_code == 3 and VARIABLE in error.value.hint

    broken = tmp_path / "libanoco_edge.so.1"
    broken.write_bytes(bytes(4096))
    assert library.find_library() == broken
    with pytest.raises(EnvironmentMissingError, match=r"cannot be loaded: .*invalid ELF"):
        open_scorer("native", bank)
    assert choose_scorer()[0] == "onnx"  # a library built for another machine is skipped

    monkeypatch.setenv(VARIABLE, "libc.so.6")
    with pytest.raises(EnvironmentMissingError, match=r"cannot be loaded: .*anoco_abi_version"):
        open_scorer("native", bank)


_PEAK = """
from pathlib import Path
import numpy as np
from anoco_edge.scoring import References, open_scorer
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
rng = np.random.default_rng(0)
query = rng.standard_normal((1000, 32), dtype=np.float32)
bank, _ = References.of(rng.standard_normal((36864, 32), dtype=np.float32))
before = peak()
open_scorer("native", bank).score(query)
print(peak() - before)
"""


def test_memory_stays_within_the_stated_budget() -> None:
    command = [sys.executable, "-c", _PEAK]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    extra = int(done.stdout) / 1e6
    print(f"extra memory: {extra:.0f} MB of {native.MEMORY_MB}")
    assert 0.3 * native.MEMORY_MB < extra < 1.1 * native.MEMORY_MB


def test_the_bench_lists_it_beside_the_others() -> None:
    result = bench_scoring([Size(60, 90, 16)], scorers=["onnx", "native"], repeat=1)
    rows = {row.name: row for row in result.rows}
    assert list(rows) == ["onnx", "native", "native, new bank", "numpy-sgemm"]
    assert rows["native"].disagree == 0 and rows["native"].budget_mb == native.MEMORY_MB
    assert rows["native, new bank"].disagree == 0 and rows["native, new bank"].kind == "scorer"


def test_made_up_features_of_the_bench_agree() -> None:
    for source in (clustered, isotropic, all_neighbors):
        query, features = source(Size(100, 2304, 512))
        bank, _ = References.of(features)
        got, expected = (open_scorer(name, bank).score(query) for name in ("native", "reference"))
        assert_agrees(got, expected, query, metric="product", max_undecided=0.01)


def test_a_scorer_that_was_inherited_by_a_fork_is_let_go_of_at_once(use_native: Path) -> None:
    """The child has none of the library's threads, so waiting for them would never end."""
    bank, _ = References.of(np.eye(4, dtype=np.float32))
    scorer = NativeScorer(bank, Parameters(), threads=2)
    scorer.score(np.eye(4, dtype=np.float32))
    if not (child := os.fork()):
        del scorer
        os._exit(0)
    deadline = time.monotonic() + 20
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0), "the child hangs in its destructor"
