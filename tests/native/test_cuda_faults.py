"""Every call to CUDA fails in turn, and the device is lost in between.

A program in runtime/tests/gpu does this with detectors and scorers; here it runs, and its counts
are shown.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import GOLDEN

BUNDLE = GOLDEN / "v1" / "everything_anoco"


@pytest.mark.parametrize(
    ("failing", "losing"), [(17, 83), pytest.param(1, 1, marks=pytest.mark.full)]
)
def test_every_call_fails_in_turn(
    failing: int,
    losing: int,
    simulated_driver: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """The error names the call, nothing leaks, and the detector goes on where it can.

    Every 17th call fails, and the device is lost at every 83rd; or both at every one, which
    takes longer.
    """
    program = simulated_driver.parents[1] / "gpu" / "test_gpu_faults"
    if not program.exists():
        pytest.skip("the simulated driver is not in a build folder with its tests")
    command = [program, BUNDLE, str(failing), str(losing)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    found = re.fullmatch(
        rf"fault injection: (\d+) failed calls \(1 of {failing}, (\d+) of them with 900 or 901 in "
        rf"a capture\) and (\d+) lost devices \(1 of {losing}\) in 4 scenarios",
        last,
    )
    assert found is not None, last
    calls, in_captures, losses = map(int, found.groups())
    assert calls > 4000 / failing and in_captures > 100 / failing and losses > 1400 / losing
    record_property("figure", last)
