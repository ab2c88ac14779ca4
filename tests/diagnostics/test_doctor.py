"""`anoco-edge doctor` tries what it says works, and gives help for what does not."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from anoco_edge.cli.commands import doctor as doctor_command
from anoco_edge.diagnostics import doctor
from anoco_edge.diagnostics.findings import Finding
from anoco_edge.engines import openvino, ort
from anoco_edge.errors import EnvironmentMissingError, SourceError


def run(*arguments: str) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(doctor_command.doctor)
    return CliRunner().invoke(app, list(arguments))


def named(findings: Sequence[Finding], group: str) -> dict[str, Finding]:
    return {f.name: f for f in findings if f.group == group}


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make modules look as if they were not installed."""
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if (top := name.split(".")[0]) in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=top)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    for loaded in [name for name in sys.modules if name.split(".")[0] in modules]:
        monkeypatch.delitem(sys.modules, loaded)


def test_json_rows_of_a_machine_that_works() -> None:
    result = run("--json", "--no-camera")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert all(set(row) == {"group", "name", "state", "detail", "help"} for row in rows)
    state = {(row["group"], row["name"]): row["state"] for row in rows}
    assert state["engines", "onnxruntime"] == "ok"
    assert state["scorers", "onnx"] == state["scorers", "reference"] == "ok"
    assert state["providers", "CPUExecutionProvider"] == "ok"
    assert state["packages", "numpy"] == "ok"
    assert all(row["help"] for row in rows if row["state"] in ("missing", "broken"))


def test_table_for_people() -> None:
    result = run("--no-camera")
    assert result.exit_code == 0
    assert "✓" in result.stdout
    assert "Parts can be inspected on this machine." in result.stdout


def test_packages_are_found_without_importing_them() -> None:
    code = (
        "import sys; from anoco_edge.diagnostics.doctor import package_findings;"
        "list(package_findings());"
        "print([m for m in ('torch', 'cv2', 'onnx', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_not_installed_comes_with_a_command() -> None:
    wanted = doctor._Package("no_such_module", ("no-such",), "to inspect", "cpu")
    optional = doctor._Package("no_such_module", ("no-such",), "to export", "export", needed=False)
    first, second = doctor.package_findings([wanted, optional])
    assert (first.state, first.help) == ("missing", "pip install 'anoco-edge[cpu]'")
    assert (second.state, second.help) == ("absent", "pip install 'anoco-edge[export]'")


@pytest.mark.parametrize("jetson", [True, False])
def test_a_jetson_takes_the_opencv_of_its_system(
    jetson: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    monkeypatch.setattr("anoco_edge.sources.cv2_hints.is_jetson", lambda: jetson)
    package = next(f for f in doctor.package_findings() if f.name == "cv2")
    sources = [f for f in doctor.source_findings() if "cv2 is needed" in f.detail]
    assert len(sources) == 3 and package.state == "missing"
    for finding in (package, *sources):
        assert ("apt-get install python3-opencv" in finding.help) == jetson
        assert ("anoco-edge[camera]" in finding.help) == (not jetson)


def test_without_an_engine_nothing_can_be_inspected(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "onnxruntime", "openvino")
    findings = doctor.examine(cameras=False)
    engines = named(findings, "engines")
    engine, optional = engines["onnxruntime"], engines["openvino"]
    assert (engine.state, engine.help) == ("missing", "pip install 'anoco-edge[cpu]'")
    assert (optional.state, optional.help) == ("absent", "pip install 'anoco-edge[openvino]'")
    scorers = named(findings, "scorers")
    assert (scorers["onnx"].state, scorers["reference"].state) == ("missing", "ok")
    assert not named(findings, "providers")
    assert not doctor.usable(findings)

    result = run("--json", "--no-camera")
    assert isinstance(result.exception, EnvironmentMissingError)
    assert result.exception.exit_code == 3
    assert json.loads(result.stdout)  # the table is printed first


def test_openvino_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "onnxruntime")
    findings = doctor.examine(cameras=False)
    engine = named(findings, "engines")["openvino"]
    assert engine.state == "ok" and "devices: CPU (" in engine.detail
    assert doctor.usable(findings)


def test_openvino_that_computes_nonsense_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"x": np.array([1.0, 1.0], np.float32)}
    for engine in (ort, openvino):
        monkeypatch.setattr(engine, "probe_input", lambda: wrong)
    found = named(list(doctor.engine_findings()), "engines")
    assert {found["onnxruntime"].state, found["openvino"].state} == {"broken"}
    assert found["openvino"].help


def test_engines_of_plans_say_why_they_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {"tensorrt": "there is no NVIDIA driver", "tensorrt-rtx": ""}
    monkeypatch.setattr("anoco_edge.engines.tensorrt.why_not", lambda name: reasons[name])
    found = named(list(doctor.engine_findings()), "engines")
    assert found["tensorrt"].state == "absent"
    assert found["tensorrt"].detail == "there is no NVIDIA driver"
    assert found["tensorrt-rtx"].state == "ok"
    assert "anoco-edge build" in found["tensorrt-rtx"].detail


def test_builders_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rtx:
        __version__ = "1.7"
        ILogger = object

        class Builder:
            def __init__(self, log: object) -> None: ...

    class Lean:
        __version__ = "10.3"

    def load_module(plan_engine: str) -> Any:
        return Rtx if plan_engine == "tensorrt-rtx" else Lean

    monkeypatch.setattr("anoco_edge.plans.tensorrt_modules.load_module", load_module)
    found = named(list(doctor.builder_findings()), "builders")
    assert found["tensorrt-rtx"].state == "ok" and "1.7" in found["tensorrt-rtx"].detail
    assert found["tensorrt"].state == "broken" and "lean" in found["tensorrt"].help


def test_a_provider_that_is_listed_and_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: both)
    found = named(list(doctor.provider_findings()), "providers")
    assert found["CUDAExecutionProvider"].state == "broken"
    assert found["CPUExecutionProvider"].state == "ok"


def test_a_scorer_that_computes_nonsense_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    real = doctor.score_patches

    def wrong(*arguments: Any, scorer: str) -> Any:
        scores = real(*arguments, scorer=scorer)
        return replace(scores, energy=scores.energy + 1) if scorer == "onnx" else scores

    monkeypatch.setattr(doctor, "score_patches", wrong)
    found = named(list(doctor.scorer_findings()), "scorers")
    assert (found["onnx"].state, found["reference"].state) == ("broken", "ok")
    assert found["onnx"].help


def test_no_camera_is_fine_and_said() -> None:
    (finding,) = doctor.camera_findings([])
    assert (finding.state, finding.detail) == ("absent", "there is no /dev/video*")


def test_a_camera_that_does_not_answer() -> None:
    (finding,) = doctor.camera_findings(["/dev/video987"])
    assert finding.state == "broken"
    assert "/dev/video987" in finding.detail
    (listed,) = doctor.camera_findings(["/dev/video987"], try_them=False)
    assert listed.detail == "is there (not tried)"


def test_cameras_that_answer_or_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from anoco_edge.images.frame import Frame

    class Camera(list[Frame]):
        def __enter__(self) -> Camera:
            return self

        def __exit__(self, *_: object) -> None: ...

    def open_source(inputs: list[str], *, camera: str, limit: int, timeout: float) -> Camera:
        device = camera
        if device == "/dev/video1":
            raise SourceError("it stopped", hint="plug it in again")
        return Camera([Frame(device, 0, np.zeros((48, 64, 3), np.uint8), None, 1.0, 0.0)])

    monkeypatch.setattr(doctor, "open_source", open_source)
    good, bad = doctor.camera_findings(["/dev/video0", "/dev/video1"])
    assert (good.state, good.detail) == ("ok", "answers with 64x48")
    assert (bad.state, bad.detail, bad.help) == ("broken", "it stopped", "plug it in again")


def test_gstreamer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.cameras, "has_gstreamer", lambda: False)
    found = named(list(doctor.video_findings()), "video")
    assert found["OpenCV"].state == "ok"
    assert found["GStreamer"].state == "absent"
    assert "JetPack" in found["GStreamer"].help
    monkeypatch.setattr(doctor.cameras, "has_gstreamer", lambda: True)
    assert named(list(doctor.video_findings()), "video")["GStreamer"].state == "ok"


@pytest.mark.parametrize("why", ["a file is in its place", "no permission"])
def test_a_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    assert named(list(doctor.machine_findings()), "machine")["cache"].state == "ok"
    if why == "no permission":  # root may write everywhere, so the error is only simulated
        monkeypatch.setattr("os.access", lambda path, mode: False)
    else:
        (tmp_path / "new").touch(mode=0o777)
    cache = named(list(doctor.machine_findings()), "machine")["cache"]
    assert (cache.state, "XDG_CACHE_HOME" in cache.help) == ("broken", True)
