"""libanoco_edge as a C library: what it exports, and how it is installed and found.

Its test programs run under sanitizers and on an emulated processor.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from native_build import ctest, sanitized_build, shared_build
from paths import RUNTIME

from anoco_edge import __version__
from anoco_edge.native.library import load_library

HEADERS = ("anoco_edge.h", "anoco_cuda.h", "anoco_backend.h")


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# The interface.


@pytest.mark.parametrize("header", HEADERS)
def test_headers_are_plain_c99(header: str, tmp_path: Path) -> None:
    need("cc")
    source = tmp_path / "header.c"
    source.write_text(f'#include "{header}"\nint main(void) {{ return 0; }}\n')
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    run("cc", *flags, f"-I{RUNTIME / 'include'}", source)


def declared() -> set[str]:
    """List the functions of the headers by their ANOCO_API."""
    texts = [(RUNTIME / "include" / header).read_text() for header in HEADERS]
    names = [re.findall(r"^ANOCO_API [^(;]*?\b(\w+)\(", text, re.MULTILINE) for text in texts]
    assert sum(map(len, names)) == sum(text.count("\nANOCO_API ") for text in texts)
    return {name for found in names for name in found}


def exported(library: Path) -> dict[str, str]:
    """Return the version of each exported symbol."""
    lines = run("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines()
    # Type "A" marks the name of the version itself.
    names = [line.split()[2] for line in lines if line.split()[1] != "A"]
    return {name: version for name, _, version in (found.partition("@@") for found in names)}


def test_declared_listed_and_exported_functions_are_the_same(native_library: Path) -> None:
    """abi/symbols.txt only grows, because removing a symbol breaks programs built before."""
    need("nm")
    listed = (RUNTIME / "abi" / "symbols.txt").read_text().split()
    assert listed == sorted(listed)
    assert declared() == set(listed)
    assert exported(native_library) == dict.fromkeys(listed, "ANOCO_EDGE_1")


def test_the_library_calls_itself_by_its_interface_and_needs_the_c_library_only(
    native_library: Path,
) -> None:
    need("readelf")
    lines = run("readelf", "-d", native_library).splitlines()
    names = {
        kind: {line.split("[")[1].rstrip("]") for line in lines if f"({kind})" in line}
        for kind in ("SONAME", "NEEDED", "RPATH", "RUNPATH")
    }
    assert names["SONAME"] == {"libanoco_edge.so.1"}
    assert not names["RPATH"] | names["RUNPATH"]
    system = {
        "libstdc++",
        "libm",
        "libgcc_s",
        "libc",
        "libdl",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
    }
    assert {name.split(".")[0] for name in names["NEEDED"]} <= system


def test_the_library_has_the_version_of_the_package(use_native: Path) -> None:
    assert load_library().anoco_version().decode() == __version__


def test_the_presets_are_there() -> None:
    need("cmake")
    listed = re.findall(r'^  "(\w+)"', run("cmake", "--list-presets", cwd=RUNTIME), re.MULTILINE)
    assert {"release", "asan", "ubsan", "tsan", "aarch64"} <= set(listed)


# CMake, pkg-config and a plain compiler call find what `cmake --install` writes.

_PROGRAM = """#include <anoco_edge.h>
#include <stdio.h>
int main(void) {
  if (anoco_abi_version() != ANOCO_ABI_VERSION) return 1;
  printf("%s\\n", anoco_version());
  return 0;
}
"""

_PROJECT = """cmake_minimum_required(VERSION 3.22)
project(line LANGUAGES C)
find_package(anoco_edge {version} REQUIRED)
add_executable(line line.c)
target_link_libraries(line PRIVATE anoco_edge::anoco_edge)
"""


@pytest.fixture(scope="module")
def prefix(native_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the library, and move the folder afterwards."""
    folder = tmp_path_factory.mktemp("install")
    for component in ("runtime", "devel"):
        options = ("--component", component, "--prefix", folder / "first")
        run("cmake", "--install", native_build, *options)
    return (folder / "first").rename(folder / "moved")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "line.c").write_text(_PROGRAM)
    return tmp_path


def lib(prefix: Path) -> Path:
    (found,) = prefix.rglob("libanoco_edge.so")
    return found.parent


def test_find_package(prefix: Path, program: Path) -> None:
    (program / "CMakeLists.txt").write_text(_PROJECT.format(version=__version__))
    run("cmake", "-S", program, "-B", program / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", program / "b")
    assert run(program / "b" / "line").strip() == __version__


def test_find_package_refuses_a_newer_major_version(prefix: Path, program: Path) -> None:
    (program / "CMakeLists.txt").write_text(_PROJECT.format(version="99.0"))
    command = ["cmake", "-S", program, "-B", program / "b", f"-DCMAKE_PREFIX_PATH={prefix}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and f"version: {__version__}" in done.stderr


def test_pkg_config(prefix: Path, program: Path) -> None:
    need("pkg-config")
    command = ["env", f"PKG_CONFIG_PATH={lib(prefix) / 'pkgconfig'}", "pkg-config"]
    assert run(*command, "--modversion", "anoco_edge").strip() == __version__
    flags = run(*command, "--cflags", "--libs", "anoco_edge").split()
    run("cc", "line.c", "-o", "line", *flags, f"-Wl,-rpath,{lib(prefix)}", cwd=program)
    assert run(program / "line").strip() == __version__


def test_the_compiler_alone(prefix: Path, program: Path) -> None:
    flags = [f"-I{prefix / 'include'}", f"-L{lib(prefix)}", "-lanoco_edge"]
    run("cc", "line.c", "-o", "line", *flags, f"-Wl,-rpath,{lib(prefix)}", cwd=program)
    assert run(program / "line").strip() == __version__


def test_a_device_gets_the_library_and_nothing_to_compile_with(
    native_build: Path, tmp_path: Path
) -> None:
    run("cmake", "--install", native_build, "--component", "runtime", "--prefix", tmp_path)
    files = {path.name for path in tmp_path.rglob("*") if not path.is_dir()}
    assert files == {"libanoco_edge.so.1", f"libanoco_edge.so.{__version__}"}


# Its programs (runtime/tests).


def test_programs(native_build: Path) -> None:
    ctest(native_build)


@pytest.mark.full
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_programs_under_sanitizers(sanitizers: str) -> None:
    ctest(sanitized_build(sanitizers), "--exclude-regex", "scalar", "--parallel", "2")


@pytest.mark.full
def test_programs_on_arm() -> None:
    need("aarch64-linux-gnu-g++", "qemu-aarch64-static")
    toolchain = RUNTIME / "cmake" / "aarch64-linux-gnu.cmake"
    folder = shared_build("aarch64", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}")
    if shutil.which("readelf"):
        assert "AArch64" in run("readelf", "-h", folder / "libanoco_edge.so")
    ctest(folder, "--parallel", "2")
