"""Every CUDA kernel compiles for every target without spills, and its resources are recorded.

Running the kernels is tested elsewhere, under emulation (runtime/tests/simt).
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from paths import RUNTIME

CUDA = RUNTIME / "cuda"
# Blocks of a multiprocessor, where they are not 4: what multiplies by tensor cores keeps its sums
# in registers, those of the means of dense rows with their rounding errors.
BLOCKS = {
    "anoco_qr_top2_f16": 2,
    "anoco_products_f16": 2,
    "anoco_dense_limit_f16": 2,
    "anoco_dense_pull_f16": 1,
}
PINNED = ["NVRTC 12.6", "NVRTC 13.0"]  # resources.md has their figures


@pytest.fixture(scope="module")
def script() -> ModuleType:
    sys.path.insert(0, str(CUDA))
    try:
        return importlib.import_module("compile")
    finally:
        sys.path.remove(str(CUDA))


@pytest.fixture(scope="module")
def codes(script: ModuleType, users_cache: None) -> list[Any]:
    """Compile the kernels with the compilers of this machine, or take what the native build did."""
    compilers = script.find_compilers()
    if not compilers:
        pytest.skip(f"no CUDA compiler: {script.HINT}")
    return script.compile_all(compilers)


@pytest.fixture(scope="module")
def kernels() -> set[str]:
    return set(re.findall(r"X\((anoco_\w+)\)", (CUDA / "gpu_kernels.h").read_text()))


def test_every_target_has_every_kernel_and_none_spills(
    script: ModuleType, codes: list[Any], kernels: set[str]
) -> None:
    for code in codes:
        if code.target.ptx:
            text = code.bytes.decode()
            assert ".target sm_75" in text and text.endswith("\0")
            assert set(re.findall(r"\.entry (\w+)", text)) == kernels
            continue
        assert code.bytes.startswith(b"\x7fELF")
        assert set(re.findall(r"\.entry (\w+)", code.ptx.decode())) == kernels
        assert f".target {code.target.name}\n" in code.ptx.decode()
        taken = script.resources_of(code)
        assert set(taken) == kernels
        for name, each in taken.items():
            assert (each.stack, each.spilled) == (0, 0), (code.target.name, name)
            # So many blocks of 256 threads fit a multiprocessor; that of sm_75 has shared memory
            # for one tile of products.
            blocks = BLOCKS.get(name, 4)
            if name in BLOCKS and code.target.name == "sm_75":
                blocks = 1
            assert each.registers <= 256 // blocks, (code.target.name, name)
            assert each.shared <= (48 if name in BLOCKS else 12) * 1024, (code.target.name, name)


def test_what_each_kernel_takes_is_written_down(script: ModuleType, codes: list[Any]) -> None:
    here = sorted({code.compiler.name for code in codes})
    if here != PINNED:
        pytest.skip(f"resources.md is of {' and '.join(PINNED)}; here is {' and '.join(here)}")
    assert (CUDA / "resources.md").read_text() == script.resources_table(codes)


def test_occupancy_is_the_least_of_three(script: ModuleType) -> None:
    occupancy = script.occupancy
    assert occupancy("sm_87", registers=40, shared=0) == 1, "all warps"
    assert occupancy("sm_87", registers=41, shared=0) == 5 / 6, "registers come in eights"
    assert occupancy("sm_87", registers=128, shared=49152) == 1 / 3, "two blocks by registers"
    assert occupancy("sm_86", registers=32, shared=49152) == 1 / 3, "two blocks by shared memory"
    assert occupancy("sm_75", registers=64, shared=49152) == 1 / 4, "one block"


def test_each_kernel_has_a_file_and_each_file_is_compiled(kernels: set[str]) -> None:
    files = {path.name: path.read_text() for path in CUDA.glob("*.cu") if path.name != "all.cu"}
    defined = re.findall(r"^ +(anoco_\w+)\(", "\n".join(files.values()), re.MULTILINE)
    assert sorted(defined) == sorted(kernels)
    assert re.findall(r'#include "(.*)"', (CUDA / "all.cu").read_text()) == sorted(files)


def test_nvcc_compiles_them_too(script: ModuleType) -> None:
    program = shutil.which("nvcc")
    if program is None:
        pytest.skip("nvcc is not installed")
    nvcc = importlib.import_module("compilers").Nvcc(program)
    made = nvcc.compile(CUDA / "all.cu", script.Target("sm_87"))
    assert made.code.startswith(b"\x7fELF") and "anoco_walk_f16" in made.log
    assert b".entry anoco_walk_f16" in made.ptx


def test_a_kernel_that_does_not_compile_is_an_error_with_its_line(
    script: ModuleType, tmp_path: Path
) -> None:
    compilers = script.find_compilers()
    if not compilers:
        pytest.skip(f"no CUDA compiler: {script.HINT}")
    wrong = tmp_path / "wrong.cu"
    wrong.write_text('extern "C" __global__ void wrong() { nothing(); }\n')
    for compiler in compilers.values():
        with pytest.raises(script.CompileError, match=r"wrong\.cu\(1\): error"):
            compiler.compile(wrong, script.Target("sm_75"))


class Counting:
    """A compiler that writes empty code and counts its calls."""

    def __init__(self, major: int) -> None:
        self.version = (major, 0)
        self.name = f"counting {major}"
        self.calls = 0

    def compile(self, source: Path, target: Any) -> Any:
        self.calls += 1
        made = f"{target.name} by {self.name}\0".encode()
        return importlib.import_module("compilers").Compiled(made, b"ptx\0", "said")


def test_the_older_compiler_serves_what_it_knows(script: ModuleType) -> None:
    """JetPack 6 cannot load what CUDA 13 compiles, so the older compiler comes first."""
    twelve, thirteen = Counting(12), Counting(13)

    def by(compilers: dict[int, Counting]) -> dict[str, int]:
        return {target.name: compiler.version[0] for target, compiler in script.plan(compilers)}

    both = by({12: twelve, 13: thirteen})
    assert both["sm_87"] == both["compute_75"] == 12 and both["sm_110"] == 13
    assert set(by({12: twelve}).values()) == {12} and "sm_120" not in by({12: twelve})
    assert set(by({13: thirteen})) == set(both)
    assert by({}) == {}


def test_results_are_kept(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = Counting(12)
    target = script.Target("sm_75")
    first = script.compile_target(target, compiler)
    assert script.compile_target(target, compiler) == first and compiler.calls == 1
    assert (first.bytes, first.ptx) == (b"sm_75 by counting 12\0", b"ptx") and first.log == "said"
    script.compile_target(script.Target("sm_80"), compiler)
    assert compiler.calls == 2
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")  # no cache can be written there
    assert script.compile_target(target, compiler) == first and compiler.calls == 3


def test_without_a_compiler_a_build_says_so(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "find_compilers", dict)
    monkeypatch.setattr(sys, "argv", ["compile.py", "--list"])
    assert script.main() == 3
    assert "no CUDA compiler: pip install" in capsys.readouterr().err


def test_cmake_goes_on_without(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    nowhere = tmp_path / "python"
    nowhere.write_text("#!/bin/sh\necho 'no CUDA compiler: pip install something' >&2\nexit 3\n")
    nowhere.chmod(0o755)
    command = ["cmake", "-S", RUNTIME, "-B", tmp_path / "b", "-DANOCO_BUILD_TESTS=OFF"]
    for option, said in (
        (f"-DPython_EXECUTABLE={nowhere}", "CUDA: built without, no CUDA compiler: pip install"),
        ("-DANOCO_CUDA=OFF", "CUDA: off"),
    ):
        done = subprocess.run([*command, option], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout
