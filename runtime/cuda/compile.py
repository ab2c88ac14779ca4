"""Compile the kernels of this folder for every device and make one C++ file that holds the result.

    python compile.py --list               lists the compilers of this machine
    python compile.py --out FOLDER         writes FOLDER/device_code.cpp, the code beside it, and
                                           the PTX that each was made from, FOLDER/ptx, for tests
    python compile.py --resources          prints the resources of each kernel, as in resources.md

Results are stored in the user's cache, keyed by the text of the kernels and the compiler.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from compilers import OPTIONS, CompileError, Compiler, Target, find_compilers
from occupancy import occupancy

HERE = Path(__file__).resolve().parent

# The driver of JetPack 6 cannot load what CUDA 13 compiles, so 12.6 compiles for every target that
# it knows.
OLD = tuple(map(Target, ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "compute_75")))
NEW = tuple(map(Target, ("sm_100", "sm_110", "sm_120")))

_KEPT = 100  # results that the cache keeps

HINT = "pip install 'nvidia-cuda-nvrtc-cu12==12.6.*' 'nvidia-cuda-nvrtc==13.0.*'"


@dataclass(frozen=True)
class Code:
    """What a compiler made of the kernels for one target."""

    target: Target
    compiler: Compiler
    ptx: bytes  # that the code was made from; tests run it (tests/ptx)
    bytes: bytes
    log: str


def plan(compilers: dict[int, Compiler]) -> list[tuple[Target, Compiler]]:
    """Choose a compiler for each target: the oldest one that knows it."""
    old = [(target, compilers[min(compilers)]) for target in OLD] if compilers else []
    return old + [(target, compilers[13]) for target in NEW if 13 in compilers]


def sources() -> list[Path]:
    return sorted(path for path in HERE.iterdir() if path.suffix in (".cu", ".cuh", ".h"))


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "anoco-edge" / "device-code"


def compile_target(target: Target, compiler: Compiler) -> Code:
    """Take the code from the cache, or compile it and put it there."""
    key = hashlib.sha256(repr((target, compiler.name, OPTIONS, "with PTX")).encode())
    for path in sources():
        key.update(path.name.encode() + b"\0" + path.read_bytes())
    kept = cache_folder() / key.hexdigest()
    try:
        log, ptx, code = kept.read_bytes().split(b"\0", 2)
        kept.touch()
    except OSError:
        made = compiler.compile(HERE / "all.cu", target)
        log, ptx, code = made.log.encode(), made.ptx.rstrip(b"\0"), made.code
        _keep(kept, b"\0".join((log, ptx, code)))
    return Code(target, compiler, ptx, code, log.decode())


def _keep(path: Path, content: bytes) -> None:
    """Put the code into the cache, if there is one; a reader never sees a partial file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_bytes(content)
        partial.replace(path)
        by_age = sorted(path.parent.iterdir(), key=lambda entry: entry.stat().st_mtime)
        for old in by_age[:-_KEPT]:
            old.unlink()
    except OSError:
        pass


def compile_all(compilers: dict[int, Compiler]) -> list[Code]:
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(lambda item: compile_target(*item), plan(compilers)))


def cpp_file(codes: list[Code], folder: Path) -> str:
    """Return the C++ file with the table of src/gpu/device_code.hpp and the bytes by .incbin."""
    lines = [
        "// Made by cuda/compile.py.",
        '#include "gpu/device_code.hpp"',
        '#define ANOCO_HIDDEN __attribute__((visibility("hidden")))',
    ]
    rows = []
    for code in codes:
        name, path = f"anoco_code_{code.target.name}", folder / code.target.file
        quoted = str(path).replace("\\", "\\\\").replace('"', '\\"')
        # The names are hidden, so that the code reaches them directly and not through a table.
        shown = f".globl {name}, {name}_end\n.hidden {name}, {name}_end"
        lines += [
            f'asm(R"(.section .rodata\n{shown}\n.balign 64\n{name}:\n.incbin "{quoted}"\n'
            f'{name}_end:\n.byte 0\n.previous)");',
            f'extern "C" ANOCO_HIDDEN const unsigned char {name}[], {name}_end[];',
        ]
        major, minor = code.compiler.version
        fields = (
            f'"{code.target.name}"',
            code.target.capability,
            str(code.target.ptx).lower(),
            1000 * major + 10 * minor,
            name,
            f"size_t({name}_end - {name})",
        )
        rows.append(f"      {{{', '.join(map(str, fields))}}},")
    return "\n".join(
        [
            *lines,
            "",
            "namespace anoco {",
            "",
            "std::pair<const DeviceCode*, size_t> device_codes() {",
            "  static const DeviceCode codes[] = {",
            *rows,
            "  };",
            "  return {codes, sizeof codes / sizeof codes[0]};",
            "}",
            "",
            "}  // namespace anoco",
            "",
        ]
    )


_KERNEL = re.compile(
    r"entry function '(\w+)'.*?"
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?"
    r"Used (\d+) registers(?:, used \d+ barriers)?(?:, \d+ bytes cumulative stack size)?"
    r"(?:, (\d+) bytes smem)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Resources:
    """The resources of one thread of a kernel; `shared` is the memory of the block."""

    registers: int
    stack: int
    spilled: int
    shared: int


def resources_of(code: Code) -> dict[str, Resources]:
    """Return the resources of each kernel, read from the messages of ptxas."""
    return {
        name: Resources(int(registers), int(stack), int(stores) + int(loads), int(shared or 0))
        for name, stack, stores, loads, registers, shared in _KERNEL.findall(code.log)
    }


def resources_table(codes: list[Code]) -> str:
    """Return a Markdown table of each kernel's registers and occupancy by target.

    Shared memory is the same for all targets.
    """
    codes = [code for code in codes if not code.target.ptx]
    found = {code.target.name: resources_of(code) for code in codes}
    by_compiler: dict[str, list[str]] = {}
    for code in codes:
        by_compiler.setdefault(code.compiler.name, []).append(code.target.name)
    made = "; ".join(f"{name}: {', '.join(targets)}" for name, targets in by_compiler.items())
    lines = [
        "# What each kernel takes",
        "",
        "Registers of a thread by target, and the share of a multiprocessor's warps that run at",
        "the same time (`occupancy.py`); bytes of shared memory of a block.",
        f"{made}.",
        "No kernel spills or has a stack. Made by `python runtime/cuda/compile.py --resources`;",
        "`tests/native/test_device_code.py` holds it.",
        "",
        f"| kernel | {' | '.join(found)} | shared |",
        f"|---|{'---|' * (len(found) + 1)}",
    ]
    for kernel in sorted(next(iter(found.values()))):
        taken = {target: by_kernel[kernel] for target, by_kernel in found.items()}
        cells = [
            f"{each.registers}, {100 * occupancy(target, each.registers, each.shared):.0f} %"
            for target, each in taken.items()
        ]
        cells.append(" to ".join(map(str, sorted({each.shared for each in taken.values()}))))
        lines.append(f"| {kernel} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    does = parser.add_mutually_exclusive_group(required=True)
    does.add_argument("--list", action="store_true", help="which compilers there are")
    does.add_argument("--out", type=Path, help="folder for device_code.cpp")
    does.add_argument("--resources", action="store_true", help="a table of what kernels take")
    arguments = parser.parse_args()
    compilers = find_compilers()
    if not compilers:
        sys.stderr.write(f"no CUDA compiler: {HINT}\n")
        return 3
    if arguments.list:
        sys.stdout.write(", ".join(compiler.name for compiler in compilers.values()) + "\n")
        return 0
    try:
        codes = compile_all(compilers)
    except CompileError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if arguments.resources:
        sys.stdout.write(resources_table(codes))
        return 0
    folder = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ptx").mkdir(exist_ok=True)
    for code in codes:
        (folder / code.target.file).write_bytes(code.bytes)
        (folder / "ptx" / f"{code.target.name}.ptx").write_bytes(code.ptx)
    (folder / "device_code.cpp").write_text(cpp_file(codes, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
