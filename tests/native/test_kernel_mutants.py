"""Mistakes in the kernels are found: `kernel_mutants` lists them, and by whom each has to be found.

Every mistake is compiled as the kernels are; the tests of the kernels must fail with it. The
emulation is built with some of them again, once for each, which takes minutes.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kernel_mutants import MUTANTS, Mutant
from native_build import sanitized_build
from paths import RUNTIME

SIMT = RUNTIME / "tests/simt"


@pytest.fixture(scope="module")
def compiler() -> Any:
    """Return the oldest CUDA compiler of this machine."""
    sys.path.insert(0, str(RUNTIME / "cuda"))
    try:
        compilers = importlib.import_module("compilers").find_compilers()
    finally:
        sys.path.remove(str(RUNTIME / "cuda"))
    if not compilers:
        pytest.skip("no CUDA compiler")
    return compilers[min(compilers)]


def cases(quick: bool) -> list[Any]:
    return [pytest.param(m, id=m.name.replace(" ", "-")) for m in MUTANTS if m.quick == quick]


def run_with_ptx(build: Path, mutant: Mutant, ptx: str) -> subprocess.CompletedProcess[str]:
    program = build / f"tests/ptx/ptx_{mutant.tests}_kernels"
    environment = dict(os.environ, ANOCO_PTX=ptx)
    return subprocess.run([program], env=environment, capture_output=True, text=True)


def find_by_ptx(build: Path, compiler: Any, mutant: Mutant, folder: Path) -> None:
    source = mutant.write(folder / "cuda")
    made = compiler.compile(source, importlib.import_module("compilers").Target(mutant.target))
    path = folder / "mutant.ptx"
    path.write_bytes(made.ptx.rstrip(b"\0"))
    done = run_with_ptx(build, mutant, f"{build / f'device_code/ptx/{mutant.target}.ptx'}:{path}")
    assert done.returncode == 1, f"nobody has found it: {mutant.name}"
    assert mutant.ptx in done.stderr


@pytest.mark.parametrize("mutant", cases(quick=True))
def test_the_interpreter_finds_it(
    native_build: Path, compiler: Any, mutant: Mutant, tmp_path: Path
) -> None:
    find_by_ptx(native_build, compiler, mutant, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("mutant", cases(quick=False))
def test_the_interpreter_finds_it_too(
    native_build: Path, compiler: Any, mutant: Mutant, tmp_path: Path
) -> None:
    find_by_ptx(native_build, compiler, mutant, tmp_path)


def build_emulation(build: Path, mutant: Mutant, folder: Path, *flags: str) -> Path:
    """Compile the kernels with the mistake, and link them with the objects of the emulation."""
    cuda = mutant.write(folder / "cuda").parent
    program = folder / "emulated"
    roots = [f"-I{root}" for root in (cuda, SIMT, RUNTIME / "src", RUNTIME)]
    objects = [
        next(build.rglob(f"test_{mutant.tests}_kernels.dir/**/{name}.cpp.o"))
        for name in (
            f"test_{mutant.tests}_kernels",
            "agreement",
            "scoring_kernels",
            "scoring_problems",
            "reference",
        )
    ]
    command: list[str | Path] = [
        "c++",
        "-std=c++17",
        "-O1",
        "-ffp-contract=off",
        "-w",
        *flags,
        *roots,
    ]
    command += [SIMT / "kernels.cpp", *objects, build / "tests/simt/libanoco_simt.a", "-lpthread"]
    done = subprocess.run([*command, "-o", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


EMULATED = [pytest.param(m, id=m.name.replace(" ", "-")) for m in MUTANTS if m.emulation]


@pytest.mark.full
@pytest.mark.parametrize("mutant", EMULATED)
def test_the_emulation_finds_what_it_is_said_to(
    native_build: Path, mutant: Mutant, tmp_path: Path
) -> None:
    if shutil.which("c++") is None:
        pytest.skip("c++ is not installed")
    program = build_emulation(native_build, mutant, tmp_path)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode != 0, f"the emulation has not found it: {mutant.name}"


@pytest.mark.full
def test_thread_sanitizer_finds_a_removed_barrier(tmp_path: Path) -> None:
    """Its fibers are not ordered by the switch between them, so that it sees races in a block."""
    build = sanitized_build("thread")
    removed = [m for m in MUTANTS if m.name.startswith(("reduce overwrites", "factors overwrite"))]
    assert len(removed) == 2
    for number, mutant in enumerate(removed):
        folder = tmp_path / str(number)
        folder.mkdir()
        program = build_emulation(build, mutant, folder, "-fsanitize=thread", "-g")
        done = subprocess.run([program], capture_output=True, text=True)
        assert done.returncode != 0 and "data race" in done.stderr, mutant.name
