"""Finds the CUDA compilers of this machine: NVRTC, a library that pip installs, or nvcc.

    nvidia-cuda-nvrtc-cu12 12.6   the version of JetPack 6; its code also loads on newer ones
    nvidia-cuda-nvrtc 13          for the devices that 12.6 does not know

It uses only the standard library, because a build runs it without the package installed.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# Every operation is rounded on its own, as on the CPU. Calling a __host__ function from a kernel
# (20011) would otherwise be only a warning. ptxas reports the resources of each kernel.
OPTIONS = ("--fmad=false", "--std=c++17", "--diag-error=20011", "--ptxas-options=-v")

# Folder of NVRTC by CUDA's major version.
_PACKAGES = {12: "nvidia/cuda_nvrtc/lib", 13: "nvidia/cu13/lib"}


class CompileError(Exception):
    """A compiler refused a kernel; the message is the compiler's."""


@dataclass(frozen=True)
class Target:
    """A kind of device to compile for: `sm_87`, or `compute_75` for PTX, which drivers compile."""

    name: str

    @property
    def capability(self) -> int:
        return int(self.name.partition("_")[2])

    @property
    def ptx(self) -> bool:
        return self.name.startswith("compute_")

    @property
    def file(self) -> str:
        return f"{self.name}.{'ptx' if self.ptx else 'cubin'}"


@dataclass(frozen=True)
class Compiled:
    """Code for one target, the PTX that it was made from, and the messages of ptxas."""

    code: bytes
    ptx: bytes
    log: str


class Compiler(Protocol):
    """A compiler; `version` is such as (12, 6), and `name` says what it is and where it is from."""

    version: tuple[int, int]
    name: str

    def compile(self, source: Path, target: Target) -> Compiled:
        """Compile the kernels of one file."""


class Nvrtc:
    """NVRTC, the run-time compiler, called as a library."""

    def __init__(self, library: str) -> None:
        for builtins in sorted(Path(library).parent.glob("libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(builtins))  # NVRTC itself would look for it by its name only
        self._nvrtc = ctypes.CDLL(library)
        self._nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        self.name = f"NVRTC {major.value}.{minor.value}"

    def compile(self, source: Path, target: Target) -> Compiled:
        program = ctypes.c_void_p()
        text = source.read_bytes()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text, source.name.encode(), 0, 0, 0)
        try:
            arguments = [f"--gpu-architecture={target.name}", f"-I{source.parent}", *OPTIONS]
            array = (ctypes.c_char_p * len(arguments))(*(a.encode() for a in arguments))
            failed = self._nvrtc.nvrtcCompileProgram(program, len(arguments), array)
            log = self._get("ProgramLog", program).rstrip(b"\0").decode()
            if failed:
                raise CompileError(f"{self.name} for {target.name}:\n{log}")
            ptx = self._get("PTX", program)
            return Compiled(ptx if target.ptx else self._get("CUBIN", program), ptx, log)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _get(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        room = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, room)
        return room.raw

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._nvrtc, name)(*arguments)
        if code:
            raise CompileError(f"{name}: {self._nvrtc.nvrtcGetErrorString(code).decode()}")


class Nvcc:
    """nvcc, the compiler of a CUDA toolkit."""

    def __init__(self, program: str) -> None:
        self._program = program
        text = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        found = re.search(r"release (\d+)\.(\d+)", text)
        if found is None:
            raise CompileError(f"{program} --version names no release")
        self.version = (int(found[1]), int(found[2]))
        self.name = f"nvcc {found[1]}.{found[2]}"

    def compile(self, source: Path, target: Target) -> Compiled:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / target.file
            kind = "--ptx" if target.ptx else "--cubin"
            command = [self._program, kind, f"--gpu-architecture={target.name}", *OPTIONS]
            command += ["--keep", "--keep-dir", folder, "-o", str(out), str(source)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise CompileError(f"{self.name} for {target.name}:\n{done.stdout}{done.stderr}")
            ptx = out if target.ptx else next(Path(folder).glob("*.ptx"))
            return Compiled(out.read_bytes(), ptx.read_bytes(), done.stdout + done.stderr)


def find_compilers() -> dict[int, Compiler]:
    """Return one compiler for each major version of CUDA; NVRTC is preferred to nvcc."""
    nvcc = shutil.which("nvcc")
    makers: list[tuple[Callable[[str], Compiler], str]] = [(Nvrtc, at) for at in _libraries(nvcc)]
    if nvcc is not None:
        makers.append((Nvcc, nvcc))
    found: dict[int, Compiler] = {}
    for make, place in makers:
        try:
            compiler = make(place)
        except (OSError, CompileError):  # missing or incomplete
            continue
        found.setdefault(compiler.version[0], compiler)
    return {major: found[major] for major in sorted(found) if major in _PACKAGES}


def _libraries(nvcc: str | None) -> Iterator[str]:
    """List where NVRTC may be: pip packages, also of pip's build environment.

    Nvcc's toolkit; the system.
    """
    for major, package in _PACKAGES.items():
        name = f"libnvrtc.so.{major}"
        yield from (str(Path(folder, package, name)) for folder in sys.path)
        if nvcc is not None:
            yield str(Path(nvcc).resolve().parents[1] / "lib64" / name)
        yield name
