"""`auto` of the native runtime takes a plan where one runs, and waits for one on a Jetson."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import fails
from doubles.fake_tensorrt import FakeTensorRt

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings
from anoco_edge.machine import is_jetson
from anoco_edge.pipeline import native
from anoco_edge.pipeline.native import choose_parts
from anoco_edge.plans.build import build_bundle_plan
from anoco_edge.scoring.half_operands import half_operands

pytestmark = pytest.mark.usefixtures("empty_cache")


def names(bundle: Bundle, **settings: str) -> list[str]:
    chosen = choose_parts("auto", "auto", bundle, EngineSettings(**settings))  # type: ignore[arg-type]
    return [chosen["engine"].name, chosen["scorer"].name]


def test_a_plan_that_runs_here_is_taken(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    assert names(tiny_bundle) == ["openvino", "native"], "there is no plan yet"
    build_bundle_plan(tiny_bundle, "tensorrt")
    assert names(tiny_bundle) == ["tensorrt", "cuda"]
    reason = choose_parts(bundle=tiny_bundle)["engine"].reason
    assert reason == "a plan of this bundle runs on this machine's GPU"
    for asked in ({"device": "GPU"}, {"cpu_precision": "fp32"}):
        assert names(tiny_bundle, **asked) == ["openvino", "native"], "a plan has neither"
    assert choose_parts("openvino", bundle=tiny_bundle)["engine"].name == "openvino"


def test_a_jetson_waits_for_its_plan(tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "is_jetson", lambda: True)
    assert names(tiny_bundle) == ["tensorrt", "cuda"]
    assert "anoco-edge build" in choose_parts(bundle=tiny_bundle)["engine"].reason


def test_the_command_says_what_a_jetson_misses(
    here: Path, use_native: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorRT is not here, which is an error and no slow answer of the processor."""
    monkeypatch.setattr(native, "is_jetson", lambda: True)
    assert "TensorRT" in fails(3, "infer", "line.anoco", "parts", "--runtime", "native")


def test_what_a_jetson_is(tmp_path: Path) -> None:
    assert not is_jetson(tmp_path)
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    chip = tmp_path / "proc/device-tree/compatible"
    chip.write_bytes(b"raspberrypi,5\0brcm,bcm2712\0")
    assert not is_jetson(tmp_path)
    chip.write_bytes(b"nvidia,p3768-0000+p3767-0005\0nvidia,tegra234\0")
    assert is_jetson(tmp_path)
    chip.unlink()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").write_text("# R36 (release), REVISION: 4.3")
    assert is_jetson(tmp_path)


def test_int8_backbones_are_scored_with_fp16_operands() -> None:
    assert [half_operands(name) for name in ("fp32", "fp16", "bf16", "int8")] == [
        *(False, True, False, True)
    ]
