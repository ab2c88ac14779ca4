"""What a workstation writes today loads and runs on JetPack 6; see old_runtime.py."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import old_runtime
import pytest
from command_line import PATIENCE, environment
from exported_families import CASES, export_case
from old_runtime import NotAvailableError, OldRuntime, expect, make_old_runtime, run_graphs
from paths import PACKAGES, SUPPORT, TESTS, python_path
from tiny_bundle import make_tiny_bundle, textured_picture, tiny_backbone, write_good_pictures

from anoco_edge.scoring.onnx_scorer import scoring_model
from anoco_edge.scoring.onnx_session import open_session

LIMIT = 1e-4  # of float32 graphs, relative to the largest number
# Where two versions differ in the last bit, a value may be rounded to another step of INT8.
LIMITS = {"fp32": LIMIT, "fp16": 5e-3, "int8": 5e-2}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> OldRuntime:
    try:
        return make_old_runtime(tmp_path_factory.mktemp("old") / "venv")
    except NotAvailableError as error:
        pytest.skip(f"the environment of JetPack 6 cannot be made here: {error}")


@pytest.fixture
def old(made: OldRuntime, record_property: Callable[[str, str], None]) -> OldRuntime:
    """Return the old environment; what it lacks is printed at the end of the run."""
    if made.lacks:
        record_property("not executed", made.lacks)
    return made


def write(folder: Path, name: str, model: bytes, inputs: dict[str, np.ndarray]) -> Path:
    """Write a graph together with the results of today's ONNX Runtime."""
    graph = folder / f"{name}.onnx"
    graph.write_bytes(model)
    session = open_session(model, name)
    names = [output.name for output in session.get_outputs()]
    expect(graph, inputs, dict(zip(names, session.run(names, inputs), strict=True)))
    return graph


def pixels(n: int) -> np.ndarray:
    return np.stack([textured_picture(k, 64, 64) for k in range(n)])


@pytest.mark.full
def test_graphs_that_we_write_run_there(old: OldRuntime, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bank = rng.normal(size=(50, 8)).astype(np.float32)
    norms = np.linalg.norm(bank, axis=1)
    write(tmp_path, "backbone", tiny_backbone(64, 64, 8), {"pixels": pixels(3)})
    scoring = {
        "query": rng.normal(size=(16, 8)).astype(np.float32),
        "reference_units": bank / norms[:, None],
        "reference_norms": norms,
        "lambda": np.array(1.0, np.float32),
        "floor": np.array(0.05, np.float32),
    }
    write(tmp_path, "scoring", scoring_model(), scoring)
    report = run_graphs(old, tmp_path)
    assert set(report) == {"backbone", "scoring"}
    for name, found in report.items():
        assert found.get("error", 1) < LIMIT, (name, found)


@pytest.mark.full
def test_every_familys_graph_runs_there(old: OldRuntime, tmp_path: Path) -> None:
    """FP16 graphs are included, because both versions compute them in FP32 on a CPU."""
    graphs = tmp_path / "graphs"
    graphs.mkdir()
    for name in CASES:
        for precision in LIMITS:
            bundle = export_case(name, tmp_path, precision).bundle
            contract = bundle.manifest.input
            picture = textured_picture(1, contract.width, contract.height)
            content = (bundle.path / "backbone.onnx").read_bytes()
            write(graphs, f"{name}-{precision}", content, {"pixels": picture[None]})
    report = run_graphs(old, graphs)
    assert set(report) == {f"{name}-{p}" for name in CASES for p in LIMITS}
    for name, found in report.items():
        assert found.get("error", 1) < LIMITS[name.rpartition("-")[2]], (name, found)


@pytest.mark.full
def test_the_check_can_fail(old: OldRuntime, tmp_path: Path) -> None:
    import onnx

    feeds = {"pixels": pixels(1)}
    model = onnx.load_from_string(tiny_backbone(64, 64, 8))
    wrong = write(tmp_path, "wrong", model.SerializeToString(), feeds)
    session = open_session(wrong.read_bytes(), "it")
    expect(wrong, feeds, {"features": session.run(None, feeds)[0] + 1})
    new = write(tmp_path, "new", model.SerializeToString(), feeds)
    model.ir_version = 14  # the version that onnx writes by default
    new.write_bytes(model.SerializeToString())
    report = run_graphs(old, tmp_path)
    assert report["wrong"]["error"] > LIMIT
    assert "IR version" in report["new"]["failed"]


@pytest.mark.full
def test_the_package_itself_runs_there(old: OldRuntime, tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "tiny.anoco").path
    good = write_good_pictures(tmp_path / "good", 4)

    def run(*arguments: object) -> str:
        command = [old.python, "-m", "anoco_edge", *map(str, arguments)]
        ran = subprocess.run(
            command, capture_output=True, text=True, env=environment(), timeout=PATIENCE
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    run("enroll", bundle, *good[:3])
    report = json.loads(run("infer", bundle, good[3], "--json", "--out", tmp_path / "out"))
    assert report["summary"]["pictures"] == 1 and report["results"][0]["score"] > 0


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_only_a_python_that_starts_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ANOCO_PYTHON310", raising=False)
    assert old_runtime.find_python310() is None
    script(tmp_path / "python3.10", "exit 127")  # a shim without a Python behind it
    assert old_runtime.find_python310() is None
    monkeypatch.setenv("ANOCO_PYTHON310", script(tmp_path / "other", "echo 3 12 /usr/bin/other"))
    assert old_runtime.find_python310() is None
    script(tmp_path / "uv", f"echo {script(tmp_path / 'real', 'echo 3 10 /opt/with space/python')}")
    assert old_runtime.find_python310() == Path("/opt/with space/python")


def test_without_python_310_the_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(old_runtime, "_call", lambda *command: called.append(command))
    monkeypatch.setattr(old_runtime, "find_python310", lambda: None)
    assert "Python 3.10 itself was not executed" in make_old_runtime(tmp_path).lacks
    assert called[0][0] == sys.executable and "onnxruntime==1.23.2" in called[1]
    monkeypatch.setattr(old_runtime, "find_python310", lambda: Path("python3.10"))
    assert make_old_runtime(tmp_path).lacks == "" and called[2][0] == "python3.10"


def test_what_was_not_executed_is_printed_by_name(tmp_path: Path) -> None:
    """This also works with workers, whose properties travel to the process that prints.

    The run has a temporary folder of its own; otherwise it would delete gigabytes of earlier runs
    at its end.
    """
    own = ["-p", "no:cacheprovider", "--basetemp", tmp_path / "temporary"]
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_partly(record_property):\n    record_property('not executed', 'the GPU')\n"
        "def test_wholly():\n    pass\n"
        "def test_never():\n    pytest.skip('there is no camera')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", *own, tmp_path / "test_it.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**environment(), "PYTHONPATH": python_path(*PACKAGES, SUPPORT)},
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    _, _, said = ran.stdout.partition("not executed here")
    assert "test_it.py::test_partly: the GPU" in said
    assert "test_it.py::test_never: there is no camera" in said
    assert "test_wholly" not in said
