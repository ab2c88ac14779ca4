"""`anoco-edge build` builds plans on a device (a double), and for others with TensorRT-RTX."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import fails, ok, run_cli, run_process, tree
from doubles.fake_cuda import FakeCuda
from doubles.fake_tensorrt import FakeTensorRt

from anoco_edge.bundle import Bundle
from anoco_edge.plans import cache
from anoco_edge.plans.tensorrt_modules import is_installed

pytestmark = pytest.mark.usefixtures("empty_cache")
rtx = pytest.mark.skipif(
    not is_installed("tensorrt-rtx"),
    reason="tensorrt_rtx is not installed (pip install tensorrt-rtx-cu13)",
)


@pytest.fixture
def no_gpu(cuda: FakeCuda) -> None:
    cuda.count = 0


# ---- on a device


def test_a_device_builds_once_and_tests_itself(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    ran = ok("build", tiny_bundle.path, "--batch", 2, "--json")
    report = ran.json
    assert (report["engine"], report["version"]) == ("tensorrt", "10.3.0")
    assert report["gpu"] == "Orin (16 SMs, 8 GB)"
    assert report["built"] is True and report["batch"] == 2 and report["not_run"] == ""
    assert report["selftest"]["min_cosine"] > 0.99999 and not report["selftest"]["remembered"]
    plan = Path(report["plan"])
    assert plan.stat().st_size == report["size"] > 1000
    again = ok("build", tiny_bundle.path, "--batch", 2, "--json").json
    assert again["built"] is False and again["selftest"]["remembered"] is True
    assert again["plan"] == report["plan"]
    anew = ok("build", tiny_bundle.path, "--batch", 2, "--force", "--json").json
    assert anew["built"] is True and anew["selftest"]["remembered"] is False
    assert ok("build", tiny_bundle.path, "--json").json["plan"] != report["plan"]


def test_the_table_says_time_memory_and_size(
    trt: FakeTensorRt, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_bundle.path.parent)
    ran = ok("build")  # it takes the only bundle in this directory
    for words in ("tensorrt 10.3.0", "Orin", "up to 1", " s ", "MB at most", "passed", ".plan"):
        assert words in ran.out, words
    assert ran.err == ""
    again = ok("build")
    assert again.err == "the plan exists already (--force builds it again)\n"


def test_a_plan_that_computes_nonsense_does_not_stay(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    trt.wrong_by = np.linspace(-1, 1, 8, dtype=np.float32)
    ran = run_cli("build", tiny_bundle.path)
    assert ran.code == 5 and "the plan was removed: " in ran.err
    assert "tensorrt computes other features here" in ran.complaint
    assert cache.list_plans() == [] and not cuda.buffers


def test_a_changed_plan_is_not_called_there(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    plan = Path(ok("build", tiny_bundle.path, "--json").json["plan"])
    plan.write_bytes(plan.read_bytes()[:-1] + b"!")
    assert "is not the plan that was built here" in fails(4, "build", tiny_bundle.path)
    assert ok("build", tiny_bundle.path, "--force", "--json").json["selftest"]


def test_clean_removes_what_no_longer_runs(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    old = ok("build", tiny_bundle.path, "--json").json["plan"]
    assert ok("build", "--clean").err == "no stale plans\n"
    trt.__version__ = "11.4.0"
    report = ok("build", tiny_bundle.path, "--clean", "--json").json
    assert old in report["removed"] and report["plan"] not in report["removed"]
    assert [str(record.path) for record in cache.list_plans()] == [report["plan"]]
    trt.__version__ = "11.5.0"
    ran = ok("build", "--clean")
    assert f"removed {report['plan']}" in ran.err.splitlines() and cache.list_plans() == []


# ---- without one


@rtx
def test_other_machines_plans_are_built_and_not_run(no_gpu: None, tiny_bundle: Bundle) -> None:
    before = tree(tiny_bundle.path)
    report = ok("build", tiny_bundle.path, "--target", "sm86,sm89", "--json").json
    assert report["engine"] == "tensorrt-rtx" and report["targets"] == ["sm86", "sm89"]
    assert report["built"] and report["selftest"] is None and "no NVIDIA GPU" in report["not_run"]
    assert Path(report["plan"]).read_bytes()[:4] == b"vtrt", "raw: trtexec can load it"
    assert "not run: there is no NVIDIA GPU" in ok(
        "build", tiny_bundle.path, "--target", "sm89,sm86"
    ).out.replace("[yellow]", "")
    assert tree(tiny_bundle.path) == before
    Path(report["plan"]).write_bytes(b"vtrt and something else")
    line = fails(4, "build", tiny_bundle.path, "--target", "sm86,sm89")
    assert "is not the plan that was built here" in line


@rtx
def test_a_plan_for_others_is_not_run_on_this_gpu(cuda: FakeCuda, tiny_bundle: Bundle) -> None:
    report = ok("build", tiny_bundle.path, "--target", "sm86", "--json").json
    assert report["not_run"] == "it is for sm86, and this GPU is sm87"


@rtx
def test_without_a_gpu_targets_are_needed(no_gpu: None, tiny_bundle: Bundle) -> None:
    line = fails(3, "build", tiny_bundle.path, "--engine", "tensorrt-rtx")
    assert "there is no NVIDIA GPU; say with --target" in line


@rtx
def test_ctrl_c_leaves_nothing_behind(
    no_gpu: None, tiny_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.progress import Progress

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "update", stop)
    before = tree(tmp_path)
    ran = run_cli("build", tiny_bundle.path, "--target", "sm86")
    assert (ran.code, ran.err) == (130, "anoco-edge: stopped\n")
    assert tree(tmp_path) == before


@rtx
def test_the_progress_bar_shows_the_builders_phases(
    no_gpu: None, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.progress import Progress

    shown: list[str] = []
    monkeypatch.setattr(Progress, "update", lambda *_, description, **__: shown.append(description))
    ok("build", tiny_bundle.path, "--target", "sm86")
    assert shown[0] == "Building engine" and len(set(shown)) > 1


@rtx
def test_in_a_process_of_its_own(tiny_bundle: Bundle) -> None:
    ran = run_process("build", tiny_bundle.path, "--target", "sm86", "--json")
    assert ran.code == 0 and ran.err == "" and ran.json["built"], ran.err


def test_nothing_is_installed(monkeypatch: pytest.MonkeyPatch, tiny_bundle: Bundle) -> None:
    for module in ("tensorrt", "tensorrt_rtx"):
        monkeypatch.setitem(sys.modules, module, None)
    assert "neither tensorrt nor tensorrt_rtx is installed" in fails(3, "build", tiny_bundle.path)
    line = fails(3, "build", tiny_bundle.path, "--engine", "tensorrt")
    assert "on a Jetson it comes with JetPack" in line
    line = fails(3, "build", tiny_bundle.path, "--target", "sm86")
    assert "pip install 'anoco-edge[rtx]'" in line


def test_bad_usage(tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    line = fails(2, "build", tiny_bundle.path, "--target", "sm87")
    assert "'sm87' is not a target" in line and "a plan for a Jetson is built on the Jetson" in line
    assert run_cli("build", tiny_bundle.path, "--batch", 0).code == 2
    assert run_cli("build", tiny_bundle.path, "--engine", "onnxruntime").code == 2
    assert "there is no bundle" in fails(4, "build", "missing.anoco")
