"""Builds runtime/ for tests, and skips them on a machine that cannot build it."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import RUNTIME


def build(folder: Path, *options: str, target: str = "all") -> Path:
    """Configure and build runtime/ in `folder`."""
    for tool in ("cmake", "cc", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed, so the native library cannot be built")
    generator = ("-G", "Ninja") if shutil.which("ninja") else ()
    ours = f"-DPython_EXECUTABLE={sys.executable}"  # this Python's OpenVINO has the headers
    configure = ["cmake", "-S", str(RUNTIME), "-B", str(folder), ours, *generator, *options]
    make = ["cmake", "--build", str(folder), "--parallel", "2", "--target", target]
    for command in (configure, make):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def build_once(folder: Path, *options: str) -> Path:
    """Build runtime/ once, for all processes that run tests at the same time."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / ".built"
        if not done.exists():
            build(folder, *options)
            done.touch()
    return folder


def ctest(folder: Path, *options: str) -> None:
    """Run the programs in runtime/tests."""
    command = ["ctest", "--test-dir", str(folder), "--output-on-failure", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "100% tests passed" in done.stdout, done.stdout
