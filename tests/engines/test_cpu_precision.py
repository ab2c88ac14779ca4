"""The processor computes in BF16 where it may: a product is judged as it was taught."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import fails, ok
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.bundle import Bundle
from anoco_edge.detector import Detector
from anoco_edge.engines import ENGINES, EngineSettings, cpu_precision, selftest
from anoco_edge.engines.cpu_precision import (
    VARIABLE,
    check_asked,
    plan_precision,
    why_not_here,
)
from anoco_edge.engines.opening import open_tested_engine
from anoco_edge.errors import BundleError, EnvironmentMissingError, ParityError, UsageError
from anoco_edge.teaching import NewPicture, Settings, Teacher

needs_bf16 = pytest.mark.skipif(bool(why_not_here("bf16")), reason=why_not_here("bf16"))
FP32, BF16 = EngineSettings(cpu_precision="fp32"), EngineSettings(cpu_precision="bf16")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let new products take BF16, which the other tests do not."""
    monkeypatch.delenv(VARIABLE)


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the processor look as if it had these instruction sets alone."""
    return lambda *names: monkeypatch.setattr(cpu_precision, "cpu_flags", lambda: frozenset(names))


def parts(*seeds: int) -> list[NewPicture]:
    return [NewPicture.from_array(f"part{k}", textured_picture(k, 96, 80)) for k in seeds]


def teach_part(bundle: Bundle, settings: EngineSettings | None = None, engine: str = "auto") -> str:
    """Teach the product `part` and return what it records."""
    change = Teacher.open(bundle, engine, settings=settings).enroll(parts(1, 2), "part")
    return change.product.cpu_precision or "the graph's"


def graph(precision: str) -> Any:
    """A stand-in for a bundle whose graph has this precision."""
    backbone = SimpleNamespace(precision=precision)
    return SimpleNamespace(path="line.anoco", manifest=SimpleNamespace(backbone=backbone))


# ---- what a new product takes, and what then follows it


@needs_bf16
def test_a_new_product_takes_bf16_and_is_judged_in_it(tiny_bundle: Bundle, free: None) -> None:
    assert teach_part(tiny_bundle) == "bf16"
    detector = Detector.open(tiny_bundle)
    assert detector.choices["engine"].name == "openvino"
    chosen = detector.choices["cpu_precision"]
    assert chosen == ("bf16", "the product was taught in it")
    assert detector.remarks == ()
    assert detector.inspect(textured_picture(3, 96, 80)).to_row()["cpu_precision"] == "bf16"


def test_a_product_of_before_stays_in_fp32(tiny_bundle: Bundle, monkeypatch: Any) -> None:
    assert teach_part(tiny_bundle) == "the graph's", VARIABLE
    written = json.loads((tiny_bundle.product_folder("part") / "product.json").read_bytes())
    assert "cpu_precision" not in written, "older versions would refuse it"
    picture = textured_picture(3, 96, 80)
    before = Detector.open(tiny_bundle).inspect(picture)
    monkeypatch.delenv(VARIABLE)
    detector = Detector.open(tiny_bundle)
    assert detector.choices["engine"].name == "onnxruntime"
    assert detector.choices["cpu_precision"] == ("fp32", "the product was taught in it")
    assert detector.inspect(picture).score == before.score
    change = Teacher.open(tiny_bundle).enroll(parts(5), "part")
    assert change.product.cpu_precision is None, "a change follows the product as well"


@needs_bf16
def test_products_of_one_bundle_keep_their_own(tiny_bundle: Bundle, monkeypatch: Any) -> None:
    teach_part(tiny_bundle)
    monkeypatch.delenv(VARIABLE)
    teacher = Teacher.open(tiny_bundle)
    assert teacher.enroll(parts(1, 2), "other").product.cpu_precision == "bf16"
    assert teacher.enroll(parts(7), "part").product.cpu_precision is None
    assert teacher.enroll(parts(8), "other").product.cpu_precision == "bf16"


def test_without_it_new_products_stay_in_fp32_and_say_why(
    tiny_bundle: Bundle, free: None, flags: Callable[..., None]
) -> None:
    flags("avx2", "avx512_vnni")
    opened = open_tested_engine("openvino", tiny_bundle)
    assert opened.precision is not None and opened.precision.name == "fp32"
    assert "has no AVX512-BF16 or AMX" in opened.precision.reason
    assert teach_part(tiny_bundle) == "the graph's"


def test_a_self_test_that_fails_in_bf16_leaves_fp32(
    tiny_bundle: Bundle, free: None, flags: Callable[..., None], monkeypatch: Any, empty_cache: None
) -> None:
    flags("avx512_bf16")
    monkeypatch.setitem(selftest.LIMITS, selftest.CPU_BF16, (1.1, 0.0))
    opened = open_tested_engine("auto", tiny_bundle)
    assert opened.choice.name == "onnxruntime"
    assert opened.precision is not None and opened.precision.name == "fp32"
    assert "worst cosine" in opened.precision.reason
    with pytest.raises(ParityError, match=r"in BF16 here.*cpu_precision='fp32'"):
        open_tested_engine("auto", tiny_bundle, BF16)


def test_a_broken_setting_of_the_environment_is_an_error(
    tiny_bundle: Bundle, flags: Callable[..., None], monkeypatch: Any
) -> None:
    flags("amx_bf16")
    monkeypatch.setenv(VARIABLE, "half")
    with pytest.raises(UsageError, match=f"{VARIABLE} is 'half'"):
        plan_precision("auto", tiny_bundle, EngineSettings(), None)


# ---- asked for by name


def test_bf16_by_name_is_bf16_or_an_error(tiny_bundle: Bundle, flags: Callable[..., None]) -> None:
    flags("avx2")
    with pytest.raises(EnvironmentMissingError, match="no AVX512-BF16 or AMX"):
        open_tested_engine("auto", tiny_bundle, BF16)
    flags("avx512_bf16")
    with pytest.raises(UsageError, match=r"onnxruntime has no BF16.*engine='openvino'"):
        open_tested_engine("onnxruntime", tiny_bundle, BF16)
    with pytest.raises(UsageError, match="GPU computes elsewhere"):
        open_tested_engine(
            "openvino", tiny_bundle, EngineSettings(device="GPU", cpu_precision="bf16")
        )
    with pytest.raises(UsageError, match="tensorrt computes elsewhere"):
        check_asked(ENGINES.get("tensorrt"), tiny_bundle, FP32)


def test_int8_is_the_graphs_own(flags: Callable[..., None]) -> None:
    flags("avx_vnni")
    spec, int8 = ENGINES.get("openvino"), EngineSettings(cpu_precision="int8")
    with pytest.raises(BundleError, match=r"the graph of line.anoco is FP32.*again in INT8"):
        check_asked(spec, graph("fp32"), int8)
    for named in (FP32, BF16):
        with pytest.raises(BundleError, match="is INT8; leave `cpu_precision` out"):
            check_asked(spec, graph("int8"), named)
    check_asked(spec, graph("int8"), int8)
    assert plan_precision("auto", graph("int8"), EngineSettings(), None).name == "int8"
    flags("avx2")
    with pytest.raises(EnvironmentMissingError, match="no VNNI"):
        check_asked(spec, graph("int8"), int8)
    assert "slow" in plan_precision("auto", graph("int8"), EngineSettings(), None).reason


# ---- a threshold holds for the scores that it was computed from


@needs_bf16
def test_another_precision_than_the_products_is_said(tiny_bundle: Bundle) -> None:
    teach_part(tiny_bundle, BF16)
    (said,) = Detector.open(tiny_bundle, engine="onnxruntime").remarks
    assert "was taught in BF16 and is judged in FP32 (onnxruntime has no BF16" in said
    (said,) = Detector.open(tiny_bundle, settings=FP32).remarks
    assert "judged in FP32 (asked for)" in said
    assert Detector.open(tiny_bundle, settings=BF16).remarks == ()
    teach_part(other := make_tiny_bundle(tiny_bundle.path.with_name("other.anoco")), FP32)
    (said,) = Detector.open(other, settings=BF16).remarks
    assert "taught in the precision of its graph and is judged in BF16" in said


@needs_bf16
def test_a_calibration_is_repeated_in_the_new_precision(tiny_bundle: Bundle) -> None:
    teacher = Teacher.open(tiny_bundle, "openvino", settings=FP32)
    teacher.enroll(parts(1, 2), "part")
    first = teacher.calibrate(parts(*range(10, 30)), "part", false_reject=0.1).product
    again = Teacher.open(tiny_bundle, "openvino", settings=BF16)
    second = again.configure(Settings({"min_area": 1.0}), "part").product
    assert (first.cpu_precision, second.cpu_precision) == (None, "bf16")
    assert first.calibration is not None and second.calibration is not None
    scores = [[p.score for p in c.pictures] for c in (first.calibration, second.calibration)]
    assert scores[0] != scores[1], "they were computed again"
    picture = parts(10)[0].rgb
    detector = Detector.open(tiny_bundle, engine="openvino")
    assert detector.inspect(picture).score == scores[1][0]
    same = again.configure(Settings({"min_area": 2.0}), "part").product
    assert same.calibration == second.calibration


# ---- what people see


@needs_bf16
def test_the_commands_say_what_runs(here: Path, free: None) -> None:
    runs = ok("info", "line.anoco", "--json").json["runs"]
    assert [(one["engine"], one["cpu_precision"]) for one in runs] == [
        ("onnxruntime", "fp32"),
        ("openvino", "bf16"),
    ]
    assert "a new product: openvino in bf16 would run here" in ok("info", "line.anoco").out
    arguments = ("--cpu-precision", "bf16", "--json")
    ran = ok("infer", "line.anoco", "parts", *arguments)
    assert {row["cpu_precision"] for row in ran.json["results"]} == {"bf16"}
    assert "was taught in the precision of its graph" in ran.err
    settings = ok("bench", "line.anoco", "--frames", 2, *arguments).json["settings"]
    assert settings["cpu_precision"] == "bf16 (asked for)"
    message = fails(2, "infer", "line.anoco", "parts", *arguments, "--engine", "onnxruntime")
    assert "use --engine openvino" in message


def test_doctor_knows_the_processor(flags: Callable[..., None], monkeypatch: Any) -> None:
    from anoco_edge.diagnostics import cpu_precisions

    flags("avx2")
    monkeypatch.setattr(cpu_precisions, "cpu_flags", lambda: frozenset({"avx2"}))
    states = {found.name: found.state for found in cpu_precisions.precision_findings()}
    assert states == {"fp32": "ok", "bf16": "absent", "int8": "absent"}
    with pytest.raises(EnvironmentMissingError, match="bf16 was asked for: this processor"):
        cpu_precisions.require_precision(list(cpu_precisions.precision_findings()), "bf16")
    flags("amx_bf16", "amx_int8")
    monkeypatch.setattr(cpu_precisions, "cpu_flags", lambda: frozenset({"amx_bf16", "amx_int8"}))
    found = {found.name: found for found in cpu_precisions.precision_findings()}
    assert found["int8"].state == "ok" and "amx_int8" in found["int8"].detail
