"""`make demo` installs little, `make test` adds the rest, and neither undoes what the other did."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from paths import ROOT

THE_DEMO = ".venv/bin/anoco-edge demo --out demo-out"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A source tree without an environment, in which `make -n` prints what make would do."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "runtime"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def commands(checkout: Path, target: str) -> str:
    # The make that runs the tests hands its own options on; this one must not have them.
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "-n", "--no-print-directory", target]
    done = subprocess.run(
        command, cwd=checkout, env=outside, check=True, capture_output=True, text=True
    )
    return done.stdout


def stamp(checkout: Path, *names: str) -> None:
    """Mark steps as done after the last change of any source."""
    (checkout / ".venv").mkdir(exist_ok=True)
    for name in names:
        (checkout / ".venv" / name).touch()
        os.utime(checkout / ".venv" / name, (2**32, 2**32))


def test_the_demo_installs_what_it_needs_and_no_more(checkout: Path) -> None:
    printed = commands(checkout, "demo")
    assert "'.[demo]'" in printed and "'.[test]'" not in printed
    assert "-DANOCO_CUDA=OFF -DANOCO_OPENVINO_INCLUDE=OFF" in printed
    assert printed.rstrip().endswith(THE_DEMO)


def test_a_second_demo_installs_nothing(checkout: Path) -> None:
    stamp(checkout, ".light", ".native-light")
    assert commands(checkout, "demo").split() == [
        ".venv/bin/anoco-edge",
        "demo",
        "--out",
        "demo-out",
    ]


def test_tests_after_a_demo_add_the_rest_and_build_the_whole_library(checkout: Path) -> None:
    stamp(checkout, ".light", ".native-light")
    printed = commands(checkout, "test")
    assert "'.[test]'" in printed and "-DANOCO_CUDA=ON -DANOCO_OPENVINO_INCLUDE= " in printed


def test_a_demo_after_tests_keeps_their_environment_and_library(checkout: Path) -> None:
    stamp(checkout, ".tools", ".installed", ".native")
    assert commands(checkout, "demo").split() == [
        ".venv/bin/anoco-edge",
        "demo",
        "--out",
        "demo-out",
    ]
