"""`bench --rivals anomalib`: our frames beside another program's, in turn.

anomalib is not installed where tests run. A script that speaks the worker's protocol stands in for
it; docs/performance.md has the figures of the real one.
"""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from command_line import fails, ok
from tiny_bundle import make_tiny_bundle

from anoco_edge.bundle import Bundle
from anoco_edge.diagnostics.bench.anomalib_process import RivalRequest
from anoco_edge.engines.cpu_precision import why_not_here
from anoco_edge.errors import UsageError

FAKE = """
import json, sys
sys.stdin.readline()
print(json.dumps({"bank": [6, 8], "versions": {"anomalib": "9.9"}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"ms": {"fp32": 1000, "bf16": 500}[asked["precision"]]}), flush=True)
"""


def python_that_runs(folder: Path, program: str) -> Path:
    """Make an interpreter that runs this program, whichever file it is given."""
    (folder / "program.py").write_text(program)
    found = folder / "python"
    found.write_text(f"#!/bin/sh\nexec {sys.executable} {folder / 'program.py'}\n")
    found.chmod(found.stat().st_mode | stat.S_IXUSR)
    return found


@pytest.fixture
def patchcore(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tiny backbone pass for one that PatchCore knows."""
    made = RivalRequest("tiny", ("layer2",), (64, 64), 0.1, (), (), ("fp32",), 0, "")
    monkeypatch.setattr(RivalRequest, "of", staticmethod(lambda *_: made))


def test_frames_run_in_turn_beside_the_rival(here: Path, patchcore: None) -> None:
    python = python_that_runs(here, FAKE)
    arguments = ("bench", "line.anoco", "--rivals", "anomalib", "--rival-python", python)
    document = ok(*arguments, "--pictures", "parts", "--frames", 3, "--json").json
    precisions = ["fp32"] if why_not_here("bf16") else ["fp32", "bf16"]
    rows = document["rows"]
    assert [row["what"] for row in rows] == [
        "anomalib PatchCore",
        "anoco-edge, equal bank",
        "anoco-edge, full bank",
    ] * len(precisions)
    assert [row["bank"] for row in rows[:3]] == ["6 x 8", "6 x 8", "64 x 8"]
    assert [row["p50_ms"] for row in rows[::3]] == [1000, 500][: len(precisions)]
    assert all(0 < row["ratio"] < 1 for row in rows if row["what"] != "anomalib PatchCore")
    assert document["settings"]["rival_versions"] == {"anomalib": "9.9"}
    assert Bundle.open("line.anoco").products() == ["default"], "the bundle itself is untouched"
    assert "equal bank" in ok(*arguments, "--frames", 1, "--format", "md").out


def test_where_anomalib_is_not_installed(here: Path, patchcore: None) -> None:
    line = fails(3, "bench", "line.anoco", "--rivals", "anomalib")
    assert "pip install 'anomalib[openvino]'" in line and "--rival-python" in line
    line = fails(3, "bench", "line.anoco", "--rivals", "anomalib", "--rival-python", "no-python")
    assert "no-python cannot be started" in line


def test_a_rival_that_fails_says_so(here: Path, patchcore: None) -> None:
    python = python_that_runs(here, "raise SystemExit('out of memory')")
    line = fails(1, "bench", "line.anoco", "--rivals", "anomalib", "--rival-python", python)
    assert "anomalib failed: out of memory" in line


def test_another_backbone_than_patchcores(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "tiny.anoco")
    with pytest.raises(UsageError, match="none of PatchCore's"):
        RivalRequest.of(bundle, [], [], ["fp32"], 0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rivals", "anomalib", "--profile"),
        ("--rivals", "anomalib", "--max-p99", 5),
        ("--rival-python", "python3"),
    ],
)
def test_options_that_make_no_sense_together(here: Path, arguments: tuple[object, ...]) -> None:
    fails(2, "bench", "line.anoco", *arguments)
