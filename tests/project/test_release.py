"""A release: `make wheel` builds wheels that old systems accept, with their bill of materials."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from paths import ROOT
from tiny_bundle import write_good_pictures

from anoco_edge import __version__
from release.sbom import LIBRARY
from release.wheel_file import record_hash
from release.wheels import NEWEST_GLIBC, compiler

pytestmark = pytest.mark.full

LIMIT_MB = 400
ARCHS = ("x86_64", "aarch64")


def run(*command: str | Path, cwd: str | Path = "/", **variables: str) -> str:
    """Run a command where no source tree of ours is found before what is installed."""
    hidden = ("PYTHONPATH", "ANOCO_EDGE_LIBRARY")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheel` leaves; without a cross compiler, a wheel for this machine alone.

    ANOCO_EDGE_DIST names a folder that is built already.
    """
    if built := os.environ.get("ANOCO_EDGE_DIST"):
        return Path(built)
    archs = [arch for arch in ARCHS if shutil.which(compiler(arch))]
    if not archs or shutil.which("make") is None:
        pytest.skip("no make or no C++ compiler is installed, so no release can be built")
    folder = tmp_path_factory.mktemp("release") / "dist"
    run("make", "wheel", f"DIST={folder}", f"ARCHS={' '.join(archs)}", cwd=ROOT)
    return folder


def wheel_for(dist: Path, arch: str) -> Path:
    found = list(dist.glob(f"*_{arch}.whl"))
    if not found:
        pytest.skip(f"{compiler(arch)} is not installed, so there is no wheel for {arch}")
    (wheel,) = found
    return wheel


def test_hashes_are_written_beside_the_files(dist: Path) -> None:
    lines = dict(
        reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().split("\n") if line
    )
    files = [path for path in dist.iterdir() if path.name != "SHA256SUMS"]
    assert lines == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert f"anoco_edge-{__version__}.tar.gz" in lines


@pytest.mark.parametrize("arch", ARCHS)
def test_a_wheel_is_what_its_name_and_its_record_say(dist: Path, arch: str) -> None:
    wheel = wheel_for(dist, arch)
    assert re.fullmatch(
        rf"anoco_edge-{__version__}-py3-none-manylinux_2_\d+_{arch}\.whl", wheel.name
    )
    archive = zipfile.ZipFile(wheel)
    folder = f"anoco_edge-{__version__}.dist-info"
    rows = csv.reader(io.StringIO(archive.read(f"{folder}/RECORD").decode()))
    recorded = {name: hash_ for name, hash_, _ in rows}
    files = [name for name in archive.namelist() if not name.endswith("/")]
    assert sorted(recorded) == sorted(files)
    for name in set(files) - {f"{folder}/RECORD"}:
        assert recorded[name] == record_hash(archive.read(name)), name
    assert not [n for n in files if n.startswith(("runtime/", "tests/", "release/", "include/"))]


@pytest.mark.parametrize("arch", ARCHS)
def test_the_library_of_a_wheel_runs_with_an_old_c_library(
    dist: Path, arch: str, tmp_path: Path
) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    library = zipfile.ZipFile(wheel_for(dist, arch)).extract(LIBRARY, tmp_path)
    versions = re.findall(r"Name: GLIBC_2\.(\d+)", run("readelf", "-W", "--version-info", library))
    assert max(map(int, versions)) <= NEWEST_GLIBC
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\.so", run("readelf", "-d", library))
    assert set(needed) <= {"libc", "libm", "libgcc_s", "ld-linux-x86-64", "ld-linux-aarch64"}
    with Path(library).open("rb") as file:
        assert b"sm_87" in file.read(), "the kernels for Orin"


@pytest.mark.parametrize("arch", ARCHS)
def test_the_bill_of_materials_is_in_the_wheel(dist: Path, arch: str) -> None:
    """`make wheel` has compared it with the schema."""
    archive = zipfile.ZipFile(wheel_for(dist, arch))
    bom = json.loads(archive.read(f"anoco_edge-{__version__}.dist-info/sboms/anoco-edge.cdx.json"))
    found = {component["name"]: component for component in bom["components"]}
    contained = {name for name, component in found.items() if component["scope"] == "required"}
    assert contained == {"efficientnet-lite0", "libanoco_edge", "libstdc++"}
    assert {"openvino", "nvidia-cuda-nvrtc-cu12"} <= set(found)
    for ref in (LIBRARY, found["efficientnet-lite0"]["bom-ref"]):
        (component,) = (c for c in found.values() if c["bom-ref"] == ref)
        expected = hashlib.sha256(archive.read(ref)).hexdigest()
        assert component["hashes"] == [{"alg": "SHA-256", "content": expected}]


def megabytes(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6


@pytest.mark.parametrize("kind", ["wheel", "source archive"])
def test_a_fresh_environment_is_small_and_inspects(dist: Path, kind: str, tmp_path: Path) -> None:
    """pip builds the source archive in an environment of its own, with what it downloads."""
    if kind == "wheel":
        file = wheel_for(dist, os.uname().machine)
    else:
        (file,) = dist.glob("*.tar.gz")
    environment = tmp_path / "env"
    run(sys.executable, "-m", "venv", environment)
    constraints = ("--constraint", ROOT / "constraints.txt")
    pip = (environment / "bin" / "python", "-m", "pip", "install", "-qq", *constraints)
    run(*pip, f"{file}[cpu]", ANOCO_EDGE_NATIVE="required")
    size = megabytes(environment)
    print(f"a fresh [cpu] environment from the {kind}: {size:.0f} MB")
    assert size < LIMIT_MB

    command = environment / "bin" / "anoco-edge"
    pictures = write_good_pictures(tmp_path / "good", 5)
    bundle, out = tmp_path / "line.anoco", tmp_path / "out"
    run(command, "enroll", bundle, *pictures[:4])
    run(command, "infer", bundle, pictures[4], "--out", out)
    assert (out / "report.html").stat().st_size > 1000
    doctor = json.loads(run(command, "doctor", "--json", "--no-camera"))
    (native,) = (f for f in doctor if (f["group"], f["name"]) == ("scorers", "native"))
    assert native["state"] == "ok"

    refused = subprocess.run(
        [command, "export", "--backbone", "dinov3-s"], capture_output=True, text=True
    )
    assert refused.returncode == 3
    assert "pip install 'anoco-edge[export]'" in refused.stderr


# Under qemu a newer ONNX Runtime ends with a segmentation fault when it is imported. This is the
# newest for Python 3.10 on aarch64, which JetPack 6 has.
_EMULATED = ("onnxruntime==1.23.2",)
_SUITE = "bookworm"  # has Python 3.11
_MIRROR = "http://deb.debian.org/debian"


@pytest.fixture
def arm_root(tmp_path: Path) -> Path:
    """The files of a small Debian for aarch64 with Python, of which qemu runs single programs."""
    for tool in ("debootstrap", "qemu-aarch64-static", "dpkg-deb"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    if os.getuid() != 0:
        pytest.skip("debootstrap needs root")
    root = tmp_path / "root"
    options = ("--foreign", "--arch=arm64", "--variant=minbase", "--include=python3")
    run("debootstrap", *options, _SUITE, root, _MIRROR)
    for package in (root / "var/cache/apt/archives").glob("*.deb"):
        run("dpkg-deb", "-x", package, root)
    return root


def test_the_wheel_for_aarch64_inspects_under_qemu(
    dist: Path, arm_root: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "install", "-qq", "--no-compile", "--target", site)
    platforms = [f"--platform=manylinux_2_{n}_aarch64" for n in (34, 28, 27, 26, 17)]
    python = ("--only-binary=:all:", "--implementation=cp", "--python-version=3.11")
    run(*pip, *platforms, *python, wheel_for(dist, "aarch64"), *_EMULATED)
    qemu = ("qemu-aarch64-static", "-L", arm_root, "-E", f"PYTHONPATH={site}")
    cache = ("-E", f"XDG_CACHE_HOME={tmp_path / 'cache'}")
    program = (*qemu, *cache, arm_root / "usr/bin/python3.11", "-m", "anoco_edge")

    pictures = write_good_pictures(tmp_path / "good", 3)
    bundle, out = tmp_path / "line.anoco", tmp_path / "out"
    run(*program, "enroll", bundle, *pictures[:2])
    run(*program, "infer", bundle, pictures[2], "--scorer", "native", "--out", out)
    (row,) = (out / "results.jsonl").read_text().splitlines()
    assert json.loads(row)["verdict"] in ("good", "anomalous")
