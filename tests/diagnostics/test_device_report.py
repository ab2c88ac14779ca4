"""`anoco-edge device-report` says what it measured and what it could not, and fills the table."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import fails, ok, run_cli
from paths import ROOT

from anoco_edge.bundle import Bundle
from anoco_edge.detector import Detector
from anoco_edge.diagnostics.device_report import device_table, read_device_report, read_state
from anoco_edge.diagnostics.device_report.gemm_peak import measure_gemm_peak
from anoco_edge.diagnostics.device_report.state import system_facts
from anoco_edge.diagnostics.device_report.table import NONE_YET
from anoco_edge.diagnostics.device_report.two_cameras import time_two_cameras
from anoco_edge.errors import EngineError, EnvironmentMissingError, UsageError

NVPMODEL = "NV Fan Mode:quiet\nNV Power Mode: MAXN SUPER\n2\n"
SMI = "NVIDIA GeForce RTX 4090, 570.86, P2, 61.02, 450.00, 2520, 3105, 10501, 47, 812, 24564\n"
JETSON_SMI = "Orin (nvgpu), N/A, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]\n"
STAGES = {"decode", "preprocess", "backbone", "scoring", "map", "total"}


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def jetson(tmp_path: Path) -> Path:
    """Write the files that an Orin shows, as far as the report reads them."""
    cpu, gpu = "sys/devices/system/cpu/cpu", "sys/class/devfreq/17000000.gpu"
    files = {
        "proc/device-tree/model": "NVIDIA Jetson Orin Nano Developer Kit\0",
        "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3\nmore\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        "sys/class/thermal/thermal_zone0/temp": "51250\n",
        "sys/class/thermal/thermal_zone1/type": "gpu-thermal\n",
        "sys/class/thermal/thermal_zone1/temp": "48937\n",
        # It is off, so its temperature cannot be read.
        "sys/class/thermal/thermal_zone2/type": "cv0-thermal\n",
        "sys/class/hwmon/hwmon0/name": "tmp451\n",
        "sys/class/hwmon/hwmon0/temp1_input": "39500\n",
        "sys/class/hwmon/hwmon0/temp1_label": "Board\n",
        f"{gpu}/cur_freq": "1020000000\n",
        f"{gpu}/min_freq": "1020000000\n",
        f"{gpu}/max_freq": "1020000000\n",
        f"{gpu}/governor": "nvhost_podgov\n",
        "sys/class/devfreq/15340000.vic/cur_freq": "1\n",
        "sys/class/devfreq/15340000.vic/max_freq": "1\n",
    }
    for core in range(6):
        files[f"{cpu}{core}/cpufreq/scaling_max_freq"] = "1728000\n"
        files[f"{cpu}{core}/cpufreq/scaling_min_freq"] = "729600\n"
        files[f"{cpu}{core}/cpufreq/scaling_governor"] = "schedutil\n"
    return write(tmp_path / "root", files)


def tools(**printed: str) -> Any:
    def run(command: Sequence[str]) -> str:
        return printed.get(command[0].replace("-", "_"), "")

    return run


# ---- the state of a device


def test_a_jetsons_state(jetson: Path) -> None:
    state = read_state(jetson, tools(nvpmodel=NVPMODEL, nvidia_smi=JETSON_SMI))
    assert state.power_mode == "MAXN SUPER (2)"
    assert state.temperatures == {"cpu-thermal": 51.2, "gpu-thermal": 48.9, "tmp451 Board": 39.5}
    assert state.hottest == 51.2
    assert state.clocks == {
        "cpu 0,1,2,3,4,5": "up to 1728 MHz (schedutil)",
        "gpu 17000000.gpu": "1020 of 1020 MHz (nvhost_podgov, pinned)",
    }
    assert state.gpu == {"name": "Orin (nvgpu)"}
    assert system_facts(jetson) == {
        "board": "NVIDIA Jetson Orin Nano Developer Kit",
        "jetson_linux": "R36 (release), REVISION: 4.3",
    }


def test_a_desktops_state(tmp_path: Path) -> None:
    state = read_state(tmp_path, tools(nvidia_smi=SMI))
    assert state.temperatures == {"GPU (nvidia-smi)": 47.0}
    assert state.gpu["clocks.sm"] == "2520" and state.gpu["memory.used"] == "812"
    assert "temperature.gpu" not in state.gpu and state.power_mode == ""


@pytest.mark.parametrize("printed", ["", "a, b\n", "Failed to initialize NVML\n"])
def test_tools_that_say_nothing_of_use(tmp_path: Path, printed: str) -> None:
    state = read_state(tmp_path, tools(nvidia_smi=printed, nvpmodel=printed))
    assert (state.gpu, state.power_mode, state.hottest) == ({}, "", None)


# ---- on a processor


def test_the_processor_is_measured_when_asked(here: Path) -> None:
    args = ("device-report", "line.anoco", "--engine", "onnxruntime", "--frames", 5, "--json")
    ran = ok(*args, "--out", "sent")
    (data,), (page,) = Path("sent").glob("*.json"), Path("sent").glob("*.md")
    report = ran.json
    assert report == json.loads(data.read_text())
    assert set(report["frames"]["stages"]) == STAGES
    assert set(report["frames"]["stages"]["total"]) >= {"p50", "p90", "p95", "p99"}
    assert report["selftest"]["min_cosine"] > 0.99999 and report["plan"] is None
    assert [row["operands"] for row in report["agreement"]] == ["float32", "float16"]
    assert not any(row["disagree"] for row in report["agreement"])
    assert report["problems"] == [] and not report["simulated"]
    assert "the backbone on a GPU: onnxruntime uses none" in report["not_measured"]
    assert any(text.startswith("scoring on a GPU: ") for text in report["not_measured"])
    text = page.read_text()
    assert [row["picture"] for row in report["hard_pictures"]] == ["the wrong part", "no part"]
    assert all(row["ratio"] > 1 for row in report["hard_pictures"])
    cameras = report["cameras"]
    assert (cameras["cameras"], cameras["frames"], cameras["failed"]) == (2, 10, [])
    assert cameras["changes"] >= 1 and cameras["change"]["p50"] > 0
    assert "## Hard cases" in text and "product changes beside them" in text
    assert report["gemm"] is None and report["fused"] is None and report["sanitizer"] == []
    assert "**Not measured:**" in text and "| total |" in text and "Simulated" not in text
    assert f"please send in: {data} and {page}" in ran.err


def test_without_a_gpu_it_says_so_and_writes_nothing(here: Path) -> None:
    line = fails(3, "device-report", "line.anoco")
    assert "no engine runs on a GPU here" in line and "--engine onnxruntime" in line
    assert not Path("device-report").exists()


def test_without_references_the_rest_is_measured(tiny_bundle: Bundle, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ("device-report", tiny_bundle.path, "--engine", "onnxruntime", "--out", out, "--json")
    report = ok(*args).json
    assert report["frames"] is None and report["selftest"]
    assert any("has no references; teach it with" in text for text in report["not_measured"])
    assert ok("device-report", "--rows", out).out.strip() == NONE_YET


def test_a_self_test_that_fails_is_in_the_report(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anoco_edge.engines.ort import OnnxRuntimeEngine

    real = OnnxRuntimeEngine.features

    def wrong(self: Any, pixels: Any) -> Any:
        return real(self, pixels) + np.linspace(-1, 1, 8, dtype=np.float32)

    monkeypatch.setattr(OnnxRuntimeEngine, "features", wrong)
    ran = run_cli("device-report", "line.anoco", "--engine", "onnxruntime", "--frames", 2)
    assert ran.code == 5 and "computes other features here" in ran.complaint
    (data,) = Path("device-report").glob("*.json")
    report = read_device_report(data)
    assert report.selftest is None and "computes other features" in report.problems[0]
    assert "**Failed:**" in data.with_suffix(".md").read_text()


def test_a_scorer_that_disagrees_is_in_the_report(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from anoco_edge.scoring.onnx_scorer import OnnxScorer

    real = OnnxScorer.score

    def wrong(self: Any, query: Any) -> Any:
        scores = real(self, query)
        return replace(scores, energy=scores.energy * 1.01)

    monkeypatch.setattr(OnnxScorer, "score", wrong)
    args = ("device-report", "line.anoco", "--engine", "onnxruntime", "--scorer", "onnx")
    ran = run_cli(*args, "--frames", 2)
    assert ran.code == 1 and "scorer onnx disagrees with the reference on" in ran.complaint
    (data,) = Path("device-report").glob("*.json")
    assert read_device_report(data).agreement[0].disagree > 500


# ---- hard cases, and tools that may not be there

SANITIZER = """#!/bin/sh
tool=$4; shift 4
"$@" > /dev/null 2>&1 || exit 9
echo "========= $tool looked at it" >&2
test "$tool" = racecheck && echo "========= RACECHECK SUMMARY: ERRORS hazards" && exit 0
echo "========= ERROR SUMMARY: ERRORS errors"
"""


def report_with_sanitizer(
    monkeypatch: pytest.MonkeyPatch, folder: Path, errors: int | None
) -> tuple[int, Any]:
    monkeypatch.setattr("anoco_edge.diagnostics.device_report.sanitizer.TOOLS", ("memcheck",))
    if errors is not None:
        folder.mkdir()
        (folder / "compute-sanitizer").write_text(SANITIZER.replace("ERRORS", str(errors)))
        (folder / "compute-sanitizer").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
    args = ("--engine", "onnxruntime", "--frames", 1, "--sanitize", "--json")
    ran = run_cli("device-report", "line.anoco", *args)
    return ran.code, ran.json


def test_what_the_sanitizer_finds_is_in_the_report(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, report = report_with_sanitizer(monkeypatch, tmp_path / "bin", 0)
    assert code == 0 and report["sanitizer"] == [{"tool": "memcheck", "errors": 0, "said": ""}]


def test_errors_of_the_sanitizer_are_problems(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, report = report_with_sanitizer(monkeypatch, tmp_path / "bin", 3)
    (run,) = report["sanitizer"]
    assert code == 1 and run["errors"] == 3 and "memcheck looked at it" in run["said"]
    assert "compute-sanitizer memcheck reports 3" in report["problems"][0]


def test_without_the_sanitizer_the_rest_is_measured(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, report = report_with_sanitizer(monkeypatch, tmp_path / "bin", None)
    assert code == 3 and "compute-sanitizer is not installed" in report["problems"][0]
    assert report["frames"] is not None and report["sanitizer"] == []


def test_a_frame_that_fails_while_products_change_is_a_problem(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Detector.inspect

    def fails_beside_others(self: Detector, image: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise EngineError("the capture was invalidated", hint="try again")
        return real(self, image)

    monkeypatch.setattr(Detector, "inspect", fails_beside_others)
    ran = run_cli("device-report", "line.anoco", "--engine", "onnxruntime", "--frames", 2, "--json")
    assert ran.code == 1 and "frames failed while products were changed" in ran.complaint
    assert ran.json["cameras"]["failed"] == ["the capture was invalidated; try again"]


def test_products_of_one_picture_size_take_turns(here: Path) -> None:
    for name in ("lids", "caps"):
        ok("enroll", "line.anoco", "good", "--product", name)
    opened: list[str] = []
    bundle = Bundle.open("line.anoco")

    def open_one(name: str) -> Detector:
        opened.append(name)
        return Detector(bundle, name, "onnxruntime")

    pictures = sorted(Path("good").iterdir())
    found = time_two_cameras(open_one, ["lids", "caps"], pictures, 5)
    assert opened[:3] == ["lids", "caps", "lids"][: len(opened)]
    assert len(opened) == found.changes + 1 >= 2 and found.frames == 10


def test_a_product_is_changed_however_fast_the_frames_are(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ImmediateThread(threading.Thread):
        """A camera that has its frames, if it waits for nothing, before anything else happens."""

        def start(self) -> None:
            super().start()
            self.join(1)

    monkeypatch.setattr(threading, "Thread", ImmediateThread)
    bundle, pictures = Bundle.open("line.anoco"), sorted(Path("good").iterdir())
    found = time_two_cameras(
        lambda name: Detector(bundle, name, "onnxruntime"), [bundle.products()[0]], pictures, 1
    )
    assert found.changes >= 1 and found.frames == 2


def test_the_peak_of_the_gpu_is_measured(
    simulated_driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANOCO_CUDA_DRIVER", str(simulated_driver))
    assert measure_gemm_peak(32, 2).tflops > 0
    monkeypatch.setenv("ANOCO_CUDA_DRIVER", "libno-such-driver.so")
    with pytest.raises(EnvironmentMissingError, match="there is no NVIDIA driver"):
        measure_gemm_peak(32, 2)


def test_a_report_from_before_is_read(here: Path) -> None:
    ok("device-report", "line.anoco", "--engine", "onnxruntime", "--frames", 1)
    (path,) = Path("device-report").glob("*.json")
    report = json.loads(path.read_text())
    for name in ("fused", "gemm", "hard_pictures", "cameras", "sanitizer"):
        del report[name]
    path.write_text(json.dumps(report))
    assert read_device_report(path).hard_pictures == ()


# ---- the table of a README


@pytest.fixture(scope="module")
def sent(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a report as if it had come from an Orin."""
    folder = tmp_path_factory.mktemp("sent")
    args = ("device-report", template / "line.anoco", "--engine", "onnxruntime", "--frames", 3)
    ok(*args, "--out", folder)
    (path,) = folder.glob("*.json")
    report = json.loads(path.read_text())
    report["device"]["gpu"], report["engine"], report["scorer"] = "Orin", "tensorrt", "cuda"
    report["before"]["power_mode"] = "MAXN (0)"
    path.write_text(json.dumps(report))
    return folder


def test_reports_become_rows(sent: Path) -> None:
    head, line, row = ok("device-report", "--rows", sent).out.strip().splitlines()
    cells = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert line.startswith("|---")
    assert cells["| device"] == "| Orin" and cells["power mode"] == "MAXN (0)"
    assert cells["engine"] == "tensorrt" and cells["self-test"] == "passed"
    assert re.fullmatch(r"\d+\.\d / \d+\.\d ms", cells["frame p50 / p99"])


def test_a_simulated_gpu_is_no_device(sent: Path) -> None:
    (path,) = sent.glob("*.json")
    report = read_device_report(path)
    assert device_table([report.model_copy(update={"simulated": True})]) == NONE_YET
    assert device_table([report]) != NONE_YET


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"format": 1}')
    with pytest.raises(UsageError, match="is not a device report"):
        read_device_report(tmp_path / "x.json")
    assert "x.json is not a device report" in fails(2, "device-report", "--rows", tmp_path)
    assert "there is no folder" in fails(2, "device-report", "--rows", tmp_path / "none")


def test_what_was_sent_in_can_be_read() -> None:
    assert ok("device-report", "--rows", ROOT / "docs/devices").code == 0
