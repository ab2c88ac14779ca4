"""Builds what a release consists of: the source archive, wheels, and SHA256SUMS.

    python -m release.wheels --out dist --arch x86_64 --arch aarch64

`make wheel` runs it with the packages of requirements.txt. Wheels are built from the source
archive, which shows that it is complete. A wheel for another processor than this machine's is
cross-compiled.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from release.sbom import Toolchain, bill_of_materials
from release.wheel_file import add_metadata

ROOT = Path(__file__).resolve().parents[1]
ARCHS = ("x86_64", "aarch64")
NEWEST_GLIBC = 34
"""Wheels run with glibc 2.34; JetPack 6 has 2.35."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder, emptied first")
    parser.add_argument("--arch", action="append", choices=ARCHS, help="default: both")
    arguments = parser.parse_args()
    archs = arguments.arch or list(ARCHS)
    for arch in archs:
        if shutil.which(compiler(arch)) is None:
            print(f"{compiler(arch)} is not installed: apt-get install {package(arch)}")
            return 1
    if "SOURCE_DATE_EPOCH" not in os.environ:  # a commit gives the same files whenever it is built
        os.environ["SOURCE_DATE_EPOCH"] = str(int(commit_date().timestamp()))
    with tempfile.TemporaryDirectory(prefix="anoco-edge-release-") as scratch:
        built = build_release(archs, Path(scratch))
        shutil.rmtree(arguments.out, ignore_errors=True)
        arguments.out.mkdir(parents=True)
        for path in built:
            shutil.move(path, arguments.out)
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(arguments.out.iterdir())
    )
    (arguments.out / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    return 0


def build_release(archs: list[str], scratch: Path) -> list[Path]:
    """Build the source archive and a wheel for each processor."""
    call_backend("build_sdist", ROOT, scratch / "sdist")
    (archive,) = (scratch / "sdist").iterdir()
    created = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    wheels = []
    for arch in archs:
        source = unpack(archive, scratch / arch / "source")
        call_backend("build_wheel", source, scratch / arch / "plain", **build_variables(arch))
        (plain,) = (scratch / arch / "plain").glob("*.whl")
        repaired = repair(plain, arch, scratch / arch / "repaired")
        bom = bill_of_materials(repaired, Toolchain.of(compiler(arch)), created)
        text = json.dumps(bom, indent=2) + "\n"
        validate(text)
        name = "sboms/anoco-edge.cdx.json"
        wheels.append(add_metadata(repaired, name, text.encode(), scratch / arch / "wheel"))
    return [archive, *wheels]


def compiler(arch: str) -> str:
    return "c++" if arch == platform.machine() else f"{arch}-linux-gnu-g++"


def package(arch: str) -> str:
    """Return the Debian package of the compiler."""
    return "g++" if arch == platform.machine() else f"g++-{arch.replace('_', '-')}-linux-gnu"


def commit_date() -> datetime:
    """Return when the last commit was made; now, where there is no git."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%cI"]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return datetime.now(timezone.utc)
    return datetime.fromisoformat(done.stdout.strip())


def build_variables(arch: str) -> dict[str, str]:
    """Return the environment of the build backend."""
    # -s: no symbols but those of the interface.
    defines = ["ANOCO_STATIC_LIBSTDCXX=ON", "ANOCO_CUDA=ON", "CMAKE_SHARED_LINKER_FLAGS=-s"]
    variables = {"ANOCO_EDGE_NATIVE": "required"}
    if arch != platform.machine():
        toolchain = ROOT / "runtime" / "cmake" / f"{arch}-linux-gnu.cmake"
        defines.append(f"CMAKE_TOOLCHAIN_FILE={toolchain}")
        variables["_PYTHON_HOST_PLATFORM"] = f"linux-{arch}"
    return {**variables, "SKBUILD_CMAKE_DEFINE": ";".join(defines)}


def call_backend(hook: str, source: Path, out: Path, **variables: str) -> None:
    """Call a hook of scikit-build-core; what it prints is shown if it fails."""
    code = f"from scikit_build_core.build import {hook} as hook; hook({str(out)!r})"
    run([sys.executable, "-c", code], cwd=source, env={**os.environ, **variables})


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack the source archive and return the folder that it has."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return source


def repair(wheel: Path, arch: str, out: Path) -> Path:
    """Name a wheel after the oldest glibc that its library runs with."""
    run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(out), str(wheel)])
    (repaired,) = out.glob("*.whl")
    oldest = re.search(rf"manylinux_2_(\d+)_{arch}\.whl$", repaired.name)
    if oldest is None or int(oldest[1]) > NEWEST_GLIBC:
        raise SystemExit(
            f"{repaired.name}: the library needs a newer glibc than 2.{NEWEST_GLIBC}; "
            "readelf --version-info names the symbols"
        )
    return repaired


def validate(bom: str) -> None:
    """Check the bill of materials against the schema."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(bom)
    if error is not None:
        raise SystemExit(f"the bill of materials does not follow its schema: {error}")


def run(command: list[str], cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}{done.stderr}{' '.join(command)}: failed")


if __name__ == "__main__":
    sys.exit(main())
