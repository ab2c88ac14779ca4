"""What is inspected stays here: engines report nothing to their makers.

ONNX Runtime and OpenVINO keep a number for the user in the home folder before they report, so its
absence shows that they do not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import environment

INSPECT = """
import sys
from anoco_edge.detector import Detector
Detector.open(sys.argv[1], engine=sys.argv[2]).probe_engine()
"""
SUPPRESSING = ("CI", "TF_BUILD", "JENKINS_URL", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS")
"""With these they report nothing in any case."""


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_an_engine_writes_into_our_cache_only(engine: str, template: Path, tmp_path: Path) -> None:
    variables = environment()
    for name in (*SUPPRESSING, "XDG_CACHE_HOME"):
        variables.pop(name, None)
    variables["HOME"] = str(tmp_path)
    command = [sys.executable, "-c", INSPECT, str(template / "line.anoco"), engine]
    subprocess.run(command, env=variables, check=True, cwd=os.sep)
    written = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert written, "a self-test is remembered"
    assert all(path.parts[:2] == (".cache", "anoco-edge") for path in written), written
