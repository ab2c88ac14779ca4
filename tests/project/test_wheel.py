"""A wheel contains the native library where it can be built, and is complete without it elsewhere.

They are built with this environment's own scikit-build-core and CMake, and installed in a fresh
environment that borrows its packages.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

pytestmark = pytest.mark.xdist_group("native")

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


def test_without_a_compiler_the_wheel_is_plain_python_and_works(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path / "dist", CC="false", CXX="false")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "libanoco_edge" in name]

    installed = Installed(wheel, tmp_path / "env")
    found = installed.trial()
    assert found["scorer"] == "onnx" and found["energies"] == 9
    assert "libanoco_edge.so is not installed" in found["why"]
    native = installed.doctor()["scorers", "native"]
    assert native["state"] == "absent" and "not installed" in native["detail"]


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
