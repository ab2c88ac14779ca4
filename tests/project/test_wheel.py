"""A wheel contains the native library where it can be built, and is complete without it elsewhere.

They are built with this environment's own scikit-build-core and CMake, and installed in a fresh
environment that borrows its packages.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from anoco_edge import __version__
from anoco_edge.bundle.builtin import BUILTIN_FOLDER
from anoco_edge.storage.hashes import sha256_file
from release.sbom import LIBRARY, Toolchain, bill_of_materials
from release.wheel_file import add_metadata, record_hash

_TRIAL = """
import json, numpy, anoco_edge
from anoco_edge.native.library import find_library, why_not
from anoco_edge.scoring import choose_scorer, score_patches
rows = numpy.random.default_rng(0).normal(size=(9, 4)).astype("float32")
scores = score_patches(rows, rows[:5], scorer="auto")
print(json.dumps({
    "package": anoco_edge.__file__,
    "library": str(find_library()),
    "scorer": choose_scorer()[0],
    "energies": len(scores.energy),
    "why": why_not(),
}))
"""


def build_wheel(folder: Path, **variables: str) -> Path:
    for module in ("pip", "scikit_build_core"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed, so no wheel can be built")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "."]
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


class Installed:
    """A wheel that is installed in an environment of its own."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        paths = {key: str(folder) for key in ("base", "platbase")}
        own = Path(sysconfig.get_path("purelib", "venv", paths))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(own)
        # `.pth` files in those folders do nothing here, so an editable install of ours is not seen.
        borrowed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        (own / "borrowed.pth").write_text("\n".join(borrowed) + "\n")

    def run(self, *arguments: str) -> str:
        hidden = ("PYTHONPATH", "ANOCO_EDGE_LIBRARY")
        environment = {k: v for k, v in os.environ.items() if k not in hidden}
        done = subprocess.run(
            [str(self.python), *arguments],
            env=environment,
            cwd=self.python.parent,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def trial(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("-c", _TRIAL))
        assert Path(found["package"]).is_relative_to(self.python.parents[1])
        return found

    def doctor(self) -> dict[tuple[str, str], Any]:
        text = self.run("-m", "anoco_edge", "doctor", "--json", "--no-camera")
        return {(finding["group"], finding["name"]): finding for finding in json.loads(text)}


@pytest.fixture(scope="module")
def plain_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a machine without a compiler."""
    return build_wheel(tmp_path_factory.mktemp("plain"), CC="false", CXX="false")


def test_without_a_compiler_the_wheel_is_plain_python_and_works(
    plain_wheel: Path, tmp_path: Path
) -> None:
    assert plain_wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(plain_wheel).namelist() if "libanoco_edge" in name]

    installed = Installed(plain_wheel, tmp_path / "env")
    found = installed.trial()
    assert found["scorer"] == "onnx" and found["energies"] == 9
    assert "libanoco_edge.so is not installed" in found["why"]
    native = installed.doctor()["scorers", "native"]
    assert native["state"] == "absent" and "not installed" in native["detail"]


def test_a_wheel_has_the_version_the_types_and_the_backbone(plain_wheel: Path) -> None:
    archive = zipfile.ZipFile(plain_wheel)
    names = archive.namelist()
    assert plain_wheel.name.startswith(f"anoco_edge-{__version__}-")
    metadata = archive.read(f"anoco_edge-{__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nAuthor: anoco-edge developers\n" in metadata and "\nProject-URL: Source, " in metadata
    for package in ("anoco_edge", "anoco_edge_export", "anoco_edge_calibration"):
        assert f"{package}/py.typed" in names
    packaged = [path for path in BUILTIN_FOLDER.rglob("*") if path.is_file()]
    assert len(packaged) >= 5
    for path in packaged:
        name = f"anoco_edge/bundle/builtin/{path.relative_to(BUILTIN_FOLDER.parent)}"
        assert archive.read(name) == path.read_bytes()


def test_a_file_added_to_the_metadata_is_recorded(plain_wheel: Path, tmp_path: Path) -> None:
    copy = add_metadata(plain_wheel, "sboms/some.cdx.json", b"{}", tmp_path)
    old, new = zipfile.ZipFile(plain_wheel), zipfile.ZipFile(copy)
    folder = f"anoco_edge-{__version__}.dist-info"
    assert set(new.namelist()) - set(old.namelist()) == {f"{folder}/sboms/some.cdx.json"}
    rows = list(csv.reader(io.StringIO(new.read(f"{folder}/RECORD").decode())))
    assert [f"{folder}/sboms/some.cdx.json", record_hash(b"{}"), "2"] in rows
    recorded = {name: hash_ for name, hash_, _ in rows}
    files = [name for name in new.namelist() if not name.endswith("/")]
    assert sorted(recorded) == sorted(files)
    for name in files:
        if name != f"{folder}/RECORD":
            assert recorded[name] == record_hash(new.read(name)), name


_TOOLCHAIN = Toolchain("c++ 1.2.3", "1.2.3", "ab" * 32, "pkg:deb/debian/libstdc%2B%2B@1.2.3")
_CREATED = datetime(2026, 1, 2, tzinfo=timezone.utc)


def test_the_bill_of_materials_names_what_others_made(plain_wheel: Path, tmp_path: Path) -> None:
    wheel = tmp_path / plain_wheel.name
    shutil.copy(plain_wheel, wheel)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(LIBRARY, b"a library")
    bom = bill_of_materials(wheel, _TOOLCHAIN, _CREATED)
    assert bom == bill_of_materials(wheel, _TOOLCHAIN, _CREATED)
    assert bom["metadata"]["component"]["purl"] == f"pkg:pypi/anoco-edge@{__version__}"
    found = {component["name"]: component for component in bom["components"]}

    manifest = json.loads((BUILTIN_FOLDER / "manifest.json").read_text())["backbone"]
    backbone = found[manifest["id"]]
    assert backbone["hashes"][0]["content"] == sha256_file(BUILTIN_FOLDER / "backbone.onnx")
    assert backbone["licenses"] == [{"expression": "Apache-2.0"}]
    (weights,) = backbone["pedigree"]["ancestors"]
    assert weights["hashes"][0]["content"] == manifest["weights"]["sha256"]

    assert found["libstdc++"]["purl"] == _TOOLCHAIN.libstdcxx_package
    assert found["libstdc++"]["licenses"][0]["expression"].endswith("WITH GCC-exception-3.1")
    assert found["scikit-build-core"]["scope"] == "excluded"
    graph = {entry["ref"]: entry["dependsOn"] for entry in bom["dependencies"]}
    assert graph[LIBRARY] == ["libstdc++@1.2.3"]
    assert graph[f"pkg:pypi/anoco-edge@{__version__}"] == [backbone["bom-ref"], LIBRARY]


def test_a_library_of_unknown_origin_is_refused(plain_wheel: Path, tmp_path: Path) -> None:
    wheel = tmp_path / plain_wheel.name
    shutil.copy(plain_wheel, wheel)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(LIBRARY, b"a library")
    with pytest.raises(ValueError, match="say what compiled it"):
        bill_of_materials(wheel, None, _CREATED)
    assert len(bill_of_materials(plain_wheel, None, _CREATED)["components"]) == 1


def test_without_cmake_too(tmp_path: Path) -> None:
    """When pip is told to build with what is installed, nothing is downloaded."""
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "cmake.py").write_text("raise ImportError")  # hides the CMake of this environment
    wheel = build_wheel(tmp_path / "dist", PATH=str(empty), PYTHONPATH=str(empty))
    assert wheel.name.endswith("-py3-none-any.whl")


def test_who_needs_the_library_can_say_so(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="CMake configuration failed"):
        build_wheel(tmp_path, CC="false", CXX="false", ANOCO_EDGE_NATIVE="required")


@pytest.mark.full  # compiles everything once more
def test_with_a_compiler_the_wheel_carries_the_library_and_uses_it(tmp_path: Path) -> None:
    for tool in ("cmake", "cc", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed, so the native library cannot be built")
    wheel = build_wheel(tmp_path / "dist", ANOCO_EDGE_NATIVE="required")
    assert "-py3-none-linux_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert [n for n in names if "libanoco_edge" in n] == ["anoco_edge/_lib/libanoco_edge.so.1"]
    assert not [n for n in names if n.startswith(("runtime/", "tests/", "include/"))]

    installed = Installed(wheel, tmp_path / "env")
    found = installed.trial()
    assert found["scorer"] == "native" and found["why"] is None and found["energies"] == 9
    assert Path(found["library"]).is_relative_to(tmp_path / "env")
    assert installed.doctor()["scorers", "native"]["state"] == "ok"
