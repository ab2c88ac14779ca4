"""Builds runtime/ for tests, and skips them on a machine that cannot build it."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT, RUNTIME


def build(folder: Path, *options: str) -> Path:
    """Configure and build runtime/ in `folder`."""
    for tool in ("cmake", "cc", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed, so the native library cannot be built")
    generator = ("-G", "Ninja") if shutil.which("ninja") else ()
    ours = f"-DPython_EXECUTABLE={sys.executable}"  # this Python's OpenVINO has the headers
    configure = ["cmake", "-S", str(RUNTIME), "-B", str(folder), ours, *generator, *options]
    make = ["cmake", "--build", str(folder), "--parallel", "2"]
    for command in (configure, make):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def shared_build(name: str, *options: str) -> Path:
    """Build runtime/ in build/NAME, where every later run of the tests finds what is up to date.

    Processes that run tests at the same time wait for the first of them.
    """
    folder = ROOT / "build" / name
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build(folder, *options)


def sanitized_build(sanitizers: str) -> Path:
    """Build runtime/ with sanitizers, such as "thread" or "address,undefined"."""
    options = ("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1", f"-DANOCO_SANITIZE={sanitizers}")
    return shared_build(sanitizers.replace(",", "-"), *options)


def ctest(folder: Path, *options: str) -> None:
    """Run the programs in runtime/tests."""
    command = ["ctest", "--test-dir", str(folder), "--output-on-failure", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "100% tests passed" in done.stdout, done.stdout
