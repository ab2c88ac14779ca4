"""The PTX that ships runs in an interpreter (runtime/tests/ptx) and decides as the method says.

The tests of the kernels (runtime/tests/simt) compare with the float64 reference and with the CPU's
code. Here they run a second time, with the PTX that each target's code was made from: warps and
blocks in a random order, every access to memory checked for bounds, alignment, values and races.
"""

from __future__ import annotations

import importlib
import os
import subprocess
from pathlib import Path

import pytest
from native_build import ctest
from paths import ROOT

# A target of each compiler. The others of a compiler have the same text, but for a few lines of
# sm_75; all texts that differ are run in full.
FIRST = ("sm_87", "sm_100")

TESTS = ("scoring", "own", "picture")
GOLDEN = ROOT / "tests/golden/v1"


@pytest.fixture(scope="module")
def ptx(native_build: Path) -> dict[str, Path]:
    """Return the PTX of each target that the build made."""
    found = {path.stem: path for path in sorted((native_build / "device_code/ptx").glob("*.ptx"))}
    if not found:
        pytest.skip("the build had no CUDA compiler, so there is no PTX")
    return found


def body(path: Path) -> str:
    """Return the text without the lines that name the target."""
    lines = path.read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith((".target", ".version", "//")))


def run(build: Path, test: str, path: Path, seed: int = 0) -> None:
    """Run the tests of some kernels with a PTX file."""
    environment = dict(os.environ, ANOCO_PTX=str(path), ANOCO_PTX_SEED=str(seed))
    program = build / f"tests/ptx/ptx_{test}_kernels"
    done = subprocess.run([program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{path.name}, seed {seed}: {done.stderr}"


def test_the_interpreter_itself(native_build: Path) -> None:
    ctest(native_build, "-R", "^test_ptx_")


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("target", FIRST)
def test_kernels_that_ship(
    native_build: Path, ptx: dict[str, Path], target: str, test: str
) -> None:
    if target not in ptx:
        pytest.skip(f"no compiler for {target}")
    run(native_build, test, ptx[target])


@pytest.mark.full
@pytest.mark.parametrize("test", TESTS)
def test_every_target_in_several_orders(
    native_build: Path, ptx: dict[str, Path], test: str
) -> None:
    distinct = {body(path): path for path in ptx.values()}
    for path in distinct.values():
        for seed in range(1000, 4000, 1000):
            run(native_build, test, path, seed)


ROWS, REFERENCES, DIM = 64, 576, 128  # of run_picture in test_scoring_kernels.cpp


def read_counters(path: Path) -> dict[str, dict[str, int]]:
    """Return what each kernel did."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return {name: dict(zip(x[::2], map(int, x[1::2]), strict=True)) for name, *x in lines}


def count_flops(build: Path, ptx: Path, picture: str, out: Path) -> tuple[dict[str, int], float]:
    """Return the FLOPs of each kernel for a picture in FP16, and the neighbors of a patch."""
    program = build / "tests/ptx/ptx_scoring_kernels"
    environment = dict(os.environ, ANOCO_PTX=str(ptx), ANOCO_PTX_COUNTERS=str(out))
    done = subprocess.run(
        [program, picture], env=environment, check=True, capture_output=True, text=True
    )
    counted = read_counters(out)
    flops = {name: each["flops"] + each["tensor_flops"] for name, each in counted.items()}
    return flops, int(done.stdout.split()[0]) / ROWS


def test_a_picture_takes_one_product_and_a_wrong_part_four(
    native_build: Path, ptx: dict[str, Path], tmp_path: Path
) -> None:
    """All by tensor cores, which multiply whole tiles. Weights have two parts, so they take two.

    Before, every picture took two products, the second with the patches' anchors.
    """
    path = ptx["compute_75"]
    product = 2 * ROWS * REFERENCES * DIM
    usual, neighbors = count_flops(native_build, path, "usual", tmp_path / "usual")
    assert 3 < neighbors < 10
    assert usual["anoco_dense_limit_f16"] == usual["anoco_dense_pull_f16"] == 0
    assert usual["anoco_walk_f16"] < 0.05 * product, "in place of a second product"
    wrong, neighbors = count_flops(native_build, path, "crowded", tmp_path / "crowded")
    assert neighbors == REFERENCES
    anchors = 2 * 128 * 640 * DIM  # whole tiles
    assert anchors < wrong["anoco_dense_limit_f16"] < 1.1 * anchors
    assert 2 * product < wrong["anoco_dense_pull_f16"] < 2.4 * product
    some, neighbors = count_flops(native_build, path, "alike", tmp_path / "alike")
    assert neighbors == 150
    assert some["anoco_dense_limit_f16"] < 1.1 * anchors
    assert some["anoco_dense_pull_f16"] < 0.8 * product, "references that are not neighbors"
    for name, flops in (("usual", usual), ("wrong part", wrong), ("150 neighbors", some)):
        walked = sum(number for kernel, number in flops.items() if "walk" in kernel)
        dense = sum(number for kernel, number in flops.items() if "dense" in kernel)
        print(
            f"{name}: multiplications of a patch before {2 * REFERENCES * DIM}, now "
            f"{REFERENCES * DIM} + {walked // 2 // ROWS} + {dense // 2 // ROWS}"
        )


def counted_in(
    native_build: Path, test: str, run: str, ptx: dict[str, Path], folder: Path
) -> dict[str, dict[str, int]]:
    """Return what the interpreter counts for each kernel in one run of a test."""
    if FIRST[0] not in ptx:
        pytest.skip(f"no compiler for {FIRST[0]}")
    out = folder / run
    environment = dict(os.environ, ANOCO_PTX=str(ptx[FIRST[0]]), ANOCO_PTX_COUNTERS=str(out))
    program = native_build / f"tests/ptx/ptx_{test}_kernels"
    subprocess.run([program, run], env=environment, check=True, capture_output=True)
    return read_counters(out)


# The kernels of the stages that docs/roofline.py has counts of, and whose run they are of.
STAGES = {
    ("candidates", False): ("usual", "anoco_candidates"),
    ("candidates", True): ("own", "anoco_qr_top2_f16"),
    ("walk", False): ("usual", "anoco_walk_f16"),
    ("walk", True): ("own", "anoco_walk_f16"),
    ("pull and energy", False): ("usual", "anoco_pull_energy_f16"),
    ("violators", False): ("crowded", "anoco_dense_limit_f16"),
    ("weights", False): ("crowded", "anoco_dense_weights"),
    ("means", False): ("crowded", "anoco_dense_pull_f16"),
    ("energies", False): ("crowded", "anoco_dense_energy_f16"),
}


def test_the_roofline_shows_what_is_counted(
    native_build: Path, ptx: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    roofline = importlib.import_module("roofline")
    assert roofline.COUNTED_SIZE == (ROWS, REFERENCES, DIM)
    counts = {
        run: counted_in(native_build, "own" if run == "own" else "scoring", run, ptx, tmp_path)
        for run in ("usual", "crowded", "own")
    }
    for stage, (run, kernel) in STAGES.items():
        counted = counts[run][kernel]
        moved = counted["global_read"] + counted["global_written"]
        flops = counted["flops"] + counted["tensor_flops"]
        assert (moved, flops) == pytest.approx(roofline.COUNTED[stage], rel=0.02), (stage, moved)


def test_without_cublas_candidates_are_all_that_is_written(
    native_build: Path, ptx: dict[str, Path], tmp_path: Path
) -> None:
    """16 bytes for a patch and 64 references, in place of 256 bytes of products."""
    counted = counted_in(native_build, "own", "picture", ptx, tmp_path)["anoco_qr_top2_f16"]
    assert counted["tensor_flops"] == 2 * 128 * 640 * DIM, "of whole tiles"
    assert counted["global_written"] == ROWS * REFERENCES // 64 * 16


def test_float32_takes_three_products(
    native_build: Path, ptx: dict[str, Path], tmp_path: Path
) -> None:
    """Of half precision, on tensor cores; nothing of it is multiplied in float32."""
    counted = counted_in(native_build, "own", "parts", ptx, tmp_path)
    assert counted["anoco_qr_top2_f16"]["tensor_flops"] == 3 * 2 * 128 * 640 * DIM
    assert "anoco_products_f32" not in counted
    written = counted["anoco_parts_f32"]["global_written"]
    assert written == (ROWS + REFERENCES) * (3 * DIM * 2 + 4), "each number three times, and a norm"


def test_every_target_has_its_ptx(native_build: Path, ptx: dict[str, Path]) -> None:
    code = {path.stem for path in (native_build / "device_code").glob("sm_*.cubin")}
    assert code <= set(ptx) and "compute_75" in ptx
    for name, path in ptx.items():
        assert f".target {name.replace('compute', 'sm')}\n" in path.read_text()


@pytest.mark.parametrize("bundle", ["plain", "everything"])
@pytest.mark.parametrize("target", FIRST)
def test_verdicts_by_the_ptx_that_ships(
    native_build: Path, ptx: dict[str, Path], target: str, bundle: str
) -> None:
    """From the C interface over the driver to the kernels and back, compared with the CPU."""
    if target not in ptx:
        pytest.skip(f"no compiler for {target}")
    environment = dict(os.environ, ANOCO_SIM="ptx", ANOCO_PTX=str(ptx[target]))
    command = [native_build / "tests/gpu/test_gpu_detector", GOLDEN / f"{bundle}_anoco"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_simulated_driver_says_what_it_lacks(native_build: Path) -> None:
    environment = dict(os.environ, ANOCO_SIM="ptx", ANOCO_PTX="")
    command = [native_build / "tests/gpu/test_gpu_detector", GOLDEN / "plain_anoco"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and "needs the name of a PTX file in ANOCO_PTX" in done.stderr
