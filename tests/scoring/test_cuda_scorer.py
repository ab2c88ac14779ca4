"""The cuda scorer agrees with the reference, run on the simulated driver.

All host code and the kernels are real (compiled for the CPU, see runtime/tests/simt). The simulated
driver checks the rules of CUDA, and ends the process if one is broken.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scorer_cases
from agreement import assert_agrees
from numpy.typing import NDArray
from scorer_cases import HardCases, everything_near, scattered

from anoco_edge.diagnostics.bench.features import Size, clustered
from anoco_edge.diagnostics.bench.scoring import bench_scoring
from anoco_edge.errors import AnocoError, ScoringError, UsageError
from anoco_edge.scoring import (
    Parameters,
    References,
    Scores,
    choose_scorer,
    cuda,
    open_scorer,
    score_patches,
)
from anoco_edge.scoring.cuda import CudaScorer
from anoco_edge.scoring.device_array import DeviceArray

pytestmark = pytest.mark.usefixtures("use_simulated_driver")

MB = 1_000_000


class Counts(ctypes.Structure):
    """The struct simcuda_numbers of runtime/tests/simcuda/simcuda.h."""

    _fields_ = (
        ("device_bytes", ctypes.c_uint64),
        ("peak_device_bytes", ctypes.c_uint64),
        ("host_bytes", ctypes.c_uint64),
        ("objects", ctypes.c_int64),
        ("launches", ctypes.c_int64),
        ("graph_launches", ctypes.c_int64),
        ("pageable_copies", ctypes.c_int64),
    )


@pytest.fixture
def driver(use_simulated_driver: Path) -> Iterator[ctypes.CDLL]:
    """Give the test the simulated driver, and check that everything it made was freed."""
    library = ctypes.CDLL(str(use_simulated_driver))
    before = count(library)
    yield library
    library.simcuda_fail(b"", ctypes.c_int64(0), 0)
    after = count(library)
    assert after.objects == before.objects, "something was not given back"
    assert after.pageable_copies == before.pageable_copies


def bank_bytes(bank: NDArray[Any]) -> int:
    """Bytes of a bank on the device: numbers and norms, and those of its parts if it is float32."""
    rows, dim = bank.shape
    parts = 0 if bank.dtype == np.float16 else 3 * -(-dim // 8) * 8 * 2 + 4
    return int(bank.nbytes + rows * (4 + parts))


def count(driver: ctypes.CDLL) -> Counts:
    counts = Counts()
    driver.simcuda_count(ctypes.byref(counts))
    return counts


def rounded(*arguments: Any, **options: Any) -> Scores:
    """Round both sides to FP16 for any scorer, since the device multiplies such numbers."""
    query, bank, *others = arguments
    query, bank = (np.clip(rows, -65504, 65504).astype(np.float16) for rows in (query, bank))
    return score_patches(query, bank, *others, **options)


class TestFloat32(HardCases):
    scorer = "cuda"


class TestPlainFloat32(HardCases):
    scorer = "cuda"

    @pytest.fixture(autouse=True, scope="class")
    @staticmethod
    def ask_for_it() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ANOCO_EDGE_CUDA_FLOAT32", "plain")
            yield


class TestFloat16(HardCases):
    """Operands are FP16 and sums float32; the reference gets the same rounded numbers."""

    scorer: ClassVar[str] = "cuda"

    @pytest.fixture(autouse=True, scope="class")
    @staticmethod
    def round_both() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scorer_cases, "score_patches", rounded)
            yield

    @pytest.mark.parametrize("exponent", [-2, 1, 3])
    def test_long_and_short_features_neither_overflow_nor_vanish(self, exponent: int) -> None:
        """This holds over the whole range of FP16."""
        query, bank = everything_near(np.random.default_rng(4), 6, 1500, 8)
        scale = np.float32(10.0**exponent / 150)
        for lam in (1e-24, 1.0, 1e24):
            scorer_cases.check("cuda", query * scale, bank * scale, lam=lam, max_undecided=0.5)


def test_a_float16_query_and_bank_are_multiplied_as_they_are() -> None:
    """Nothing else is rounded: a float32 query stays as it is against a float16 bank."""
    query, bank = scattered(np.random.default_rng(3), 12, 40, 16)
    expected = score_patches(query, bank.astype(np.float16), scorer="reference")
    got = score_patches(query, bank.astype(np.float16), scorer="cuda")
    assert_agrees(got, expected, query, metric="product")
    coarse = rounded(query, bank, scorer="cuda")
    assert np.abs(coarse.energy / expected.energy - 1).max() > 1e-4


@pytest.mark.parametrize("half", [False, True])
def test_tiles_change_nothing_and_stay_in_their_budget(half: bool, driver: ctypes.CDLL) -> None:
    """Neither the Gram matrix of the bank nor all rows of similarities fit into memory."""
    kind = np.float16 if half else np.float32
    query, bank = (rows.astype(kind) for rows in scattered(np.random.default_rng(1), 70, 3500, 8))
    expected = score_patches(query, bank, scorer="reference")
    references, _ = References.of(bank)
    for memory in (0, 40):  # in one tile, with the Gram matrix and without it
        whole = CudaScorer(references, Parameters(), half=half, memory_mb=memory)
        scores = whole.score(query)
        assert_agrees(scores, expected, query.astype(np.float32), metric="product")
        del whole
    driver.simcuda_reset_peak()
    before = count(driver).peak_device_bytes
    tiled = CudaScorer(references, Parameters(), memory_mb=1, half=half, max_rows=70)
    launches = count(driver).launches
    again = tiled.score(query)
    for name in ("energy", "anchor", "similarity", "neighbors"):
        np.testing.assert_array_equal(getattr(again, name), getattr(scores, name))
    assert count(driver).launches - launches > 12  # two tiles of seven kernels each
    extra = count(driver).peak_device_bytes - before
    queries = 70 * (8 * (4 + kind().nbytes) + 28)
    assert extra <= MB + bank_bytes(bank) + queries + 5000
    assert extra > 0.5 * MB  # tiles have a multiple of sixteen rows
    del tiled


def test_bench_shows_the_memory_of_the_device(driver: ctypes.CDLL) -> None:
    size = Size(queries=4, references=20, dim=4)
    query, bank = clustered(size)
    before = count(driver).device_bytes
    scorer = CudaScorer(References.of(bank)[0], Parameters())
    assert scorer.device_mb() == 0, "nothing is known of the queries yet"
    scorer.score(query)
    taken = count(driver).device_bytes - before - bank_bytes(bank)
    assert scorer.device_mb() == taken / 1e6
    del scorer
    (row, _) = bench_scoring([size], scorers=["cuda"], repeat=1).rows
    assert (row.name, row.extra_mb, row.budget_mb) == (
        "cuda",
        round(taken / 1e6, 1),
        cuda.memory_mb(),
    )
    assert 4 < taken / 1e6 < 5  # cuBLAS takes that much
    assert count(driver).device_bytes == before, "it is given back with the match"


def test_memory_goes_by_the_size_of_the_device(driver: ctypes.CDLL) -> None:
    """The Gram matrix is kept if it fits into a sixteenth of it, with room for the queries."""
    query, bank = clustered(Size(queries=4, references=1100, dim=4))
    before = count(driver).device_bytes
    driver.simcuda_set_memory(ctypes.c_uint64(before + 64 * MB))
    try:
        assert cuda.memory_mb() == (before + 64 * MB) // 16 / 1e6
        for references, kept in ((800, True), (1100, False)):
            scorer = CudaScorer(References.of(bank[:references])[0], Parameters(), max_rows=4)
            assert (scorer.device_mb() > 4 * references**2 / 1e6) == kept
            scorer.score(query)
            del scorer
    finally:
        driver.simcuda_set_memory(ctypes.c_uint64(1 << 32))


def test_one_graph_is_launched_for_a_frame_and_captured_once(driver: ctypes.CDLL) -> None:
    query, bank = scattered(np.random.default_rng(2), 9, 30, 8)
    scorer = CudaScorer(References.of(bank)[0], Parameters(), max_rows=9)
    scorer.score(query)
    driver.simcuda_calls.restype = ctypes.c_int64
    before, calls = count(driver), driver.simcuda_calls()
    for _ in range(3):
        scorer.score(query)
    after = count(driver)
    assert after.graph_launches - before.graph_launches == 3
    assert driver.simcuda_calls() - calls == 3 * 4  # push, launch, wait, pop
    assert after.objects == before.objects and after.device_bytes == before.device_bytes
    del scorer


def test_bad_rows_are_named_as_the_native_scorer_names_them() -> None:
    query, bank = scattered(np.random.default_rng(5), 6, 20, 8)
    cases: list[tuple[Any, str]] = [
        (np.nan, "query patch 3 contains NaN or infinity"),
        (np.inf, "query patch 3 contains NaN or infinity"),
        (0, "query patch 3 has a zero norm"),
    ]
    for value, text in cases:
        bad = query.copy()
        bad[3] = value
        bad[5] = value
        told = []
        for name in ("cuda", "native"):
            with pytest.raises(ScoringError, match=text) as error:
                score_patches(bad, bank, scorer=name)
            told.append(str(error.value))
        assert told[0] == told[1]
    with pytest.raises(ScoringError, match="outside"):
        score_patches(query * np.float32(1e15), bank, scorer="cuda")
    large = query.copy()
    large[2, 4] = 70000
    references, _ = References.of(bank.astype(np.float16))
    with pytest.raises(ScoringError, match="query patch 2 does not fit into FP16"):
        CudaScorer(references, Parameters(), half=True).score(large)


def test_what_does_not_fit_is_refused(driver: ctypes.CDLL) -> None:
    query, bank = scattered(np.random.default_rng(5), 6, 20, 8)
    scorer = open_scorer("cuda", References.of(bank)[0])
    assert len(scorer.score(query[:0]).energy) == 0
    with pytest.raises(ScoringError, match="8 features per patch"):
        scorer.score(query[:, :5])
    with pytest.raises(ScoringError, match="floating-point"):
        scorer.score(query.astype(np.int32))
    with pytest.raises(UsageError, match="max_rows is -1"):
        CudaScorer(References.of(bank)[0], Parameters(), max_rows=-1)
    del scorer


class Uploaded:
    """An array in the simulated device's memory, made by driver calls as any program does."""

    def __init__(self, driver: ctypes.CDLL, array: NDArray[Any]) -> None:
        self._driver, self._context = driver, ctypes.c_void_p()
        pointer = ctypes.c_uint64()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self._call("cuCtxPushCurrent_v2", self._context)
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(array.nbytes))
        host = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(array.nbytes), 0)
        ctypes.memmove(host, array.ctypes.data, array.nbytes)
        size = ctypes.c_size_t(array.nbytes)
        # Asynchronous, and not waited for.
        self._call("cuMemcpyHtoDAsync_v2", pointer, host, size, None)
        self._host = host
        self.array = DeviceArray(pointer.value, array.shape, array.dtype, 1)

    def _call(self, name: str, *arguments: Any) -> None:
        assert getattr(self._driver, name)(*arguments) == 0, name

    def free(self) -> None:
        self._call("cuCtxSynchronize")
        self._call("cuMemFree_v2", ctypes.c_uint64(self.array.pointer))
        self._call("cuMemFreeHost", self._host)
        self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        self._call("cuDevicePrimaryCtxRelease_v2", 0)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("half", [False, True])
def test_a_query_on_the_device_is_scored_there(kind: Any, half: bool, driver: ctypes.CDLL) -> None:
    """This holds while the copy that makes it still runs, and if only some rows are scored."""
    query, bank = (rows.astype(kind) for rows in scattered(np.random.default_rng(8), 11, 30, 8))
    references, _ = References.of(bank.astype(np.float16))
    scorer = CudaScorer(references, Parameters(), half=half)
    expected = scorer.score(query)
    there = Uploaded(driver, query)
    got = scorer.score(there.array)
    for name in ("energy", "anchor", "similarity", "neighbors"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))
    rows = np.array([7, 0, 3])
    some = scorer.score_rows(there.array, rows)
    np.testing.assert_array_equal(some.energy, expected.energy[rows])
    with pytest.raises(UsageError, match="chosen row 11 of 11"):
        scorer.score_rows(there.array, np.array([11]))
    host = DeviceArray(query.ctypes.data, query.shape, query.dtype)
    with pytest.raises(UsageError, match="does not lead to memory of a CUDA device"):
        scorer.score(host)
    there.free()
    del scorer


def test_out_of_memory_says_what_to_do_and_leaves_nothing(driver: ctypes.CDLL) -> None:
    query, bank = scattered(np.random.default_rng(5), 6, 400, 32)
    before = count(driver).device_bytes
    driver.simcuda_set_memory(ctypes.c_uint64(before + 100_000))
    try:
        with pytest.raises(AnocoError, match=r"OUT_OF_MEMORY.*lower memory_mb"):
            score_patches(query, bank, scorer="cuda")
        assert count(driver).device_bytes == before
    finally:
        driver.simcuda_set_memory(ctypes.c_uint64(1 << 32))
    assert score_patches(query, bank, scorer="cuda").energy.shape == (6,)


def test_auto_never_takes_a_simulated_device() -> None:
    assert cuda.describe().usable and cuda.describe().simulated
    assert choose_scorer("auto")[0] == "native"
    assert choose_scorer("cuda") == ("cuda", "asked for")


# It runs in a process of its own, because a process keeps the driver that it loaded.


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables
    )


SCORE = """
import numpy as np
from anoco_edge.scoring import score_patches
rows = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
score_patches(rows, rows, scorer="cuda")
"""


LOST = """
import ctypes, gc, os
import numpy as np
from anoco_edge.errors import AnocoError
from anoco_edge.scoring import Parameters, References
from anoco_edge.scoring.cuda import CudaScorer

rows = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
scorer = CudaScorer(References.of(rows)[0], Parameters())
expected = scorer.score(rows).energy
ctypes.CDLL(os.environ["ANOCO_CUDA_DRIVER"]).simcuda_lose(ctypes.c_int64(2))
for _ in range(2):
    try:
        scorer.score(rows)
    except AnocoError as error:
        print(error)
del scorer
gc.collect()
again = CudaScorer(References.of(rows)[0], Parameters())
print("the same", np.array_equal(again.score(rows).energy, expected))
"""


def test_a_lost_device_says_so_and_a_new_scorer_works() -> None:
    done = run(LOST, SIMCUDA_LEAKS="fail")
    *told, same = done.stdout.splitlines()
    assert same == "the same True" and done.returncode == 0, done.stderr
    assert len(told) == 2
    for line in told:
        assert "CUDA_ERROR_ILLEGAL_ADDRESS: the device is lost" in line
        assert "cannot recover; destroy it and make a new detector or scorer" in line


def test_without_a_driver_asking_by_name_is_an_error_that_says_what_is_missing() -> None:
    nowhere = {"ANOCO_CUDA_DRIVER": "/nowhere/libcuda.so.1"}
    done = run(SCORE, **nowhere)
    error = done.stderr.splitlines()[-1]
    assert error.startswith("anoco_edge.errors.EnvironmentMissingError: the cuda scorer cannot be")
    assert "the CUDA driver cannot be loaded: /nowhere/libcuda.so.1" in error
    code = "from anoco_edge.scoring import choose_scorer; print(choose_scorer())"
    assert "native" in run(code, **nowhere).stdout


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"SIMCUDA_DEVICES": "0"}, "no NVIDIA device"),
        ({"SIMCUDA_DRIVER_VERSION": "11020"}, "version 11.2, at least 11.4 is needed"),
        ({"SIMCUDA_FAIL": "cuInit:1:999"}, "cuInit: CUDA_ERROR_UNKNOWN"),
        ({"SIMCUDA_FAIL": "cuDeviceGetCount:1"}, "cuDeviceGetCount: CUDA_ERROR_INVALID_VALUE"),
        ({"SIMCUDA_FAIL": "cublasGemmEx:1"}, "cublasGemmEx: CUBLAS_STATUS_EXECUTION_FAILED"),
    ],
)
def test_what_is_wrong_with_the_driver_is_said(environment: dict[str, str], text: str) -> None:
    done = run(SCORE, **environment)
    assert done.returncode == 1 and text in done.stderr, done.stderr


def test_nothing_is_left_when_a_program_ends() -> None:
    done = run(SCORE, SIMCUDA_LEAKS="fail")
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_misuse_ends_the_program(simulated_driver: Path) -> None:
    """Every test above would have failed on a misuse.

    Examples are touching device memory, not waiting for a copy, and using a freed pointer.
    """
    start = f"""
import ctypes
d = ctypes.CDLL({str(simulated_driver)!r})
d.cuInit(0); context = ctypes.c_void_p(); d.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
d.cuCtxPushCurrent_v2(context); p = ctypes.c_uint64(); h = ctypes.c_void_p()
d.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(64))
d.cuMemHostAlloc(ctypes.byref(h), ctypes.c_size_t(64), 0)
size = ctypes.c_size_t
"""
    copy = "d.cuMemcpyDtoHAsync_v2(h, p, size(64), None)\n"
    cases = {
        "ctypes.string_at(p.value, 4)": "the host touches memory of the device",
        copy + "ctypes.string_at(h.value, 4)": "while a copy of it is under way",
        copy + "d.cuMemFreeHost(h)": "work that uses it is still under way",
        "d.cuMemFree_v2(p); d.cuMemFree_v2(p)": "it was freed before",
        "d.cuMemFree_v2(p)\n" + copy: "a pointer to memory that was freed",
        "d.cuMemcpyDtoHAsync_v2(h, p, size(65), None)": "65 bytes from 0 on of an allocation",
        "d.cuCtxPopCurrent_v2(ctypes.byref(context))\n" + copy: "no context is current",
        "d.cuDevicePrimaryCtxRelease_v2(0)": "the last user goes and leaves 1 device allocation",
    }
    for code, text in cases.items():
        done = run(start + code)
        assert done.returncode < 0 and text in done.stderr, (code, done.returncode, done.stderr)
