"""Every call to CUDA fails in turn, and the device is lost in between.

runtime/tests/gpu has a program that takes detectors and scorers through it; here it is run, and
what it counted is shown.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from native_build import RUNTIME

pytestmark = pytest.mark.xdist_group("native")

BUNDLE = RUNTIME.parent / "tests" / "golden" / "v1" / "everything_anoco"


def test_every_call_fails_in_turn(
    simulated_driver: Path, record_property: Callable[[str, object], None]
) -> None:
    """The error names the call, nothing is left behind, and what can go on goes on."""
    program = simulated_driver.parents[1] / "gpu" / "test_gpu_faults"
    if not program.exists():
        pytest.skip("the simulated driver is not in a build folder with its tests")
    done = subprocess.run([program, BUNDLE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    found = re.fullmatch(
        r"fault injection: (\d+) failed calls and (\d+) lost devices in (\d+) scenarios", last
    )
    assert found is not None, last
    calls, losses, scenarios = map(int, found.groups())
    assert calls > 2000 and losses > 200 and scenarios == 4
    record_property("figure", last)
