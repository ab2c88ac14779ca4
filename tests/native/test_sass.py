"""What the devices run: the machine code of each kernel, as cuobjdump shows it.

It comes with CUDA, with `nvidia-cuda-cuobjdump` and with triton; without it the tests are skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

_FUNCTION = re.compile(r"Function : (\w+)")
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)\s*([^;]*);")

Code = list[tuple[int, str, str]]  # address, operation, operands


def cuobjdump() -> str:
    """Find the program."""
    found = shutil.which("cuobjdump")
    for package, place in (("triton", "backends/nvidia/bin"), ("nvidia", "cu13/bin")):
        spec = find_spec(package)
        for root in (spec.submodule_search_locations or []) if spec else []:
            found = found or shutil.which("cuobjdump", path=Path(root) / place)
    if found is None:
        pytest.skip("cuobjdump is not installed: pip install nvidia-cuda-cuobjdump")
    return found


@pytest.fixture(scope="module")
def machine_code(native_build: Path) -> dict[str, dict[str, Code]]:
    """Return the instructions of each kernel for each target that the build made."""
    program = cuobjdump()
    found: dict[str, dict[str, Code]] = {}
    for path in sorted((native_build / "device_code").glob("*.cubin")):
        shown = subprocess.run([program, "-sass", path], capture_output=True, text=True, check=True)
        kernels = found.setdefault(path.stem, {})
        code: Code = []
        for line in shown.stdout.splitlines():
            if name := _FUNCTION.search(line):
                code = kernels.setdefault(name[1], [])
            elif at := _INSTRUCTION.match(line):
                code.append((int(at[1], 16), at[2], at[3]))
    if not found:
        pytest.skip("the build had no CUDA compiler")
    return found


def operations(code: Code, start: str) -> list[str]:
    return [operation for _, operation, _ in code if operation.startswith(start)]


def loops(code: Code) -> list[Code]:
    """Return the body of each loop: what lies between a branch back and its target."""
    found = []
    for address, operation, operands in code:
        target = re.search(r"0x([0-9a-f]+)", operands)
        if operation.startswith("BRA") and target and int(target[1], 16) < address:
            found.append([i for i in code if int(target[1], 16) <= i[0] <= address])
    return found


def test_no_kernel_uses_local_memory(machine_code: dict[str, dict[str, Code]]) -> None:
    for target, kernels in machine_code.items():
        for name, code in kernels.items():
            assert code and not operations(code, "LDL") + operations(code, "STL"), (target, name)


@pytest.mark.parametrize(
    ("kernel", "wide"),
    [
        ("anoco_candidates", "STG.E.128"),
        ("anoco_walk_f16", "LDG.E.64"),
        ("anoco_walk_f32", "LDG.E.128"),
        ("anoco_pull_energy_f16", "LDG.E.64"),
        ("anoco_pull_energy_f32", "LDG.E.128"),
        ("anoco_dense_energy_f16", "LDG.E.128"),
    ],
)
def test_features_are_read_four_at_a_time(
    machine_code: dict[str, dict[str, Code]], kernel: str, wide: str
) -> None:
    for target, kernels in machine_code.items():
        assert operations(kernels[kernel], wide), target


@pytest.mark.parametrize("kernel", ["anoco_dense_limit_f32", "anoco_dense_pull_f32"])
def test_a_third_of_what_multiplies_dense_rows_are_multiplications(
    machine_code: dict[str, dict[str, Code]], kernel: str
) -> None:
    """The products of a step, 128 of a thread, are not interrupted by a loop or a branch."""
    for target, kernels in machine_code.items():
        found = [loop for loop in loops(kernels[kernel]) if len(operations(loop, "FFMA")) >= 128]
        body = min(found, key=len)
        assert len(body) < 3 * 128, (target, len(body))
        assert operations(body, "LDS.128") + operations(body, "LDS.U.128"), target


@pytest.mark.parametrize(
    "kernel",
    ["anoco_qr_top2_f16", "anoco_products_f16", "anoco_dense_limit_f16", "anoco_dense_pull_f16"],
)
def test_tensor_cores_multiply_what_is_copied_beside_them(
    machine_code: dict[str, dict[str, Code]], kernel: str
) -> None:
    """A stage is at least 32 products of 16 x 16 by 16 x 8 of a warp."""
    for target, kernels in machine_code.items():
        found = [loop for loop in loops(kernels[kernel]) if operations(loop, "HMMA")]
        body = min(found, key=len)
        deep = "HMMA.1688" if target == "sm_75" else "HMMA.16816"
        products = operations(body, deep)
        assert len(products) >= (64 if target == "sm_75" else 32), target
        assert all("F32" in product for product in products), "sums are float32"
        assert operations(body, "LDSM.16.M88.4"), target
        if kernel == "anoco_dense_pull_f16":
            assert operations(body, "LDSM.16.MT88.4"), "references are turned over"
        if target != "sm_75":
            assert operations(body, "LDGSTS"), target
