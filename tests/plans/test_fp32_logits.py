"""A network whose fused attention is computed wrongly is edited so that its logits are FP32.

TensorRT-RTX parses, edits and builds here; that a plan computes nonsense is simulated.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import fails, ok
from doubles.fake_cuda import FakeCuda
from doubles.fake_tensorrt import FakeTensorRt
from tiny_attention import Variant, attention_graph

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings
from anoco_edge.engines.plan_trial import build_tested_plan
from anoco_edge.engines.tensorrt import TensorRtEngine
from anoco_edge.errors import ParityError
from anoco_edge.plans import cache
from anoco_edge.plans.build import build_bundle_plan, clean_cache
from anoco_edge.plans.fp32_logits import NoHalfAttentionError, widen_logits
from anoco_edge.plans.tensorrt_builder import BuiltPlan, backbone_profile, build_plan
from anoco_edge.plans.tensorrt_modules import collecting_log, is_installed, load_module

pytestmark = pytest.mark.usefixtures("empty_cache")
rtx = pytest.mark.skipif(not is_installed("tensorrt-rtx"), reason="tensorrt_rtx is not installed")
ONE = {"pixels": ((1, 64, 64, 3),) * 3}


def build(model: bytes, **options: Any) -> BuiltPlan:
    return build_plan(
        model, ONE, plan_engine="tensorrt-rtx", targets=["sm86"], count_kernels=True, **options
    )


# ---- the real network and builder


@rtx
@pytest.mark.parametrize("dtype", ["FLOAT16", "BFLOAT16"])
@pytest.mark.parametrize("variant", ["exported", "scaled", "narrow"])
def test_product_and_softmax_become_fp32_and_the_rest_stays(variant: Variant, dtype: str) -> None:
    trt = load_module("tensorrt-rtx")
    log = collecting_log(trt)
    builder = trt.Builder(log)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, log)
    assert parser.parse(attention_graph(variant, dtype))
    assert widen_logits(trt, network) == 1
    half = trt.DataType.HALF if dtype == "FLOAT16" else trt.DataType.BF16
    layers = {network.get_layer(k).name: network.get_layer(k) for k in range(network.num_layers)}
    product, last = layers["node_logits"], layers["node_mixed"]
    assert {product.get_input(k).dtype for k in range(2)} == {trt.DataType.FLOAT}
    (softmax,) = (x for x in layers.values() if x.type == trt.LayerType.SOFTMAX)
    assert softmax.get_input(0).dtype == softmax.get_output(0).dtype == trt.DataType.FLOAT
    assert {last.get_input(k).dtype for k in range(2)} == {half}, "this product stays narrow"
    assert network.get_output(0).dtype == trt.DataType.FLOAT and not log.errors_logged.first()


@rtx
@pytest.mark.parametrize("variant", ["exported", "scaled", "narrow"])
def test_the_edited_network_builds_and_is_not_fused(variant: Variant) -> None:
    model = attention_graph(variant)
    edited = build(model, fp32_logits=True).kernels
    assert edited is not None and edited.fused == 0
    if variant == "exported":
        fused = build(model).kernels
        assert fused is not None and fused.fused == 1 and fused.kernels < edited.kernels


@rtx
def test_a_network_without_half_attention_is_left_alone() -> None:
    with pytest.raises(NoHalfAttentionError, match="no attention in half precision"):
        build(attention_graph("fp32"), fp32_logits=True)


@rtx
@pytest.mark.full
@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize("name", ["dinov3-s", "dinov2-s", "clip-b"])
def test_every_exported_block_is_edited(name: str, precision: Any, tmp_path: Path) -> None:
    from exported_families import export_case

    bundle = export_case(name, tmp_path, precision).bundle
    profile = backbone_profile(bundle.manifest.input)
    fused, edited = (
        build_plan(
            bundle.graph_file(),
            profile,
            plan_engine="tensorrt-rtx",
            targets=["sm86"],
            count_kernels=True,
            fp32_logits=wide,
        ).kernels
        for wide in (False, True)
    )
    assert fused is not None and fused.fused > 0
    assert edited is not None and edited.fused == 0


# ---- the second choice, with a double of TensorRT


WRONG = np.linspace(-1, 1, 8, dtype=np.float32)


@pytest.fixture
def wrong(trt: FakeTensorRt) -> FakeTensorRt:
    """Make a TensorRT that computes fused attention wrongly."""
    trt.half_attention, trt.wrong_fused = True, WRONG
    return trt


def test_a_plan_that_is_wrong_is_built_again_with_fp32_logits(
    wrong: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    told: list[str] = []
    trial = build_tested_plan(tiny_bundle, "tensorrt", tell=told.append)
    why = trial.outcome.fp32_logits
    assert trial.selftest is not None and trial.selftest.min_cosine > 0.9999
    assert why.startswith(
        "TensorRT 10.3.0 computes the fused plan wrongly (tensorrt computes other"
    )
    again = "building it again with FP32 logits, which takes longer for each picture"
    assert told[0].startswith("the plan was removed: ") and told[1:] == [f"{why}; {again}"]
    assert wrong.builds == ["fused", "fp32 logits"]
    (record,) = cache.list_plans()
    engine = TensorRtEngine("tensorrt", tiny_bundle, EngineSettings())
    assert engine.remarks == (f"tensorrt: runs with FP32 logits, which takes longer: {why}",)
    assert record == trial.outcome.record


def test_it_is_remembered_for_this_version_alone(
    wrong: FakeTensorRt, cuda: FakeCuda, tiny_bundle: Bundle
) -> None:
    why = build_tested_plan(tiny_bundle, "tensorrt").outcome.fp32_logits
    again = build_tested_plan(tiny_bundle, "tensorrt")
    assert not again.outcome.built and again.outcome.fp32_logits == why
    wrong.builds.clear()
    assert build_tested_plan(tiny_bundle, "tensorrt", batch=2).outcome.fp32_logits == why
    assert wrong.builds == ["fp32 logits"], "the other batch size knows it"
    assert clean_cache() == [] and build_bundle_plan(tiny_bundle, "tensorrt").fp32_logits == why
    wrong.__version__, wrong.wrong_fused = "10.6.0", np.float32(0)
    wrong.builds.clear()
    updated = build_tested_plan(tiny_bundle, "tensorrt")
    assert updated.outcome.built and updated.outcome.fp32_logits == "" and wrong.builds == ["fused"]
    assert any(path.suffix == ".logits" for path in clean_cache()), "it is stale now"


def test_force_tries_the_fused_plan_again(wrong: FakeTensorRt, tiny_bundle: Bundle) -> None:
    build_tested_plan(tiny_bundle, "tensorrt")
    wrong.builds.clear()
    assert build_tested_plan(tiny_bundle, "tensorrt", force=True).outcome.fp32_logits
    assert wrong.builds == ["fused", "fp32 logits"]
    wrong.wrong_fused = np.float32(0)
    assert build_tested_plan(tiny_bundle, "tensorrt", force=True).outcome.fp32_logits == ""
    assert TensorRtEngine("tensorrt", tiny_bundle, EngineSettings()).remarks == ()


def test_what_is_wrong_in_both_ways_is_refused(wrong: FakeTensorRt, tiny_bundle: Bundle) -> None:
    wrong.wrong_by = WRONG
    with pytest.raises(ParityError, match="with FP32 logits too: tensorrt computes other features"):
        build_tested_plan(tiny_bundle, "tensorrt")
    assert cache.list_plans() == [] and not list(cache.plans_folder().glob("*.logits"))


def test_without_attention_there_is_no_second_choice(
    trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    trt.wrong_by = WRONG
    with pytest.raises(ParityError, match=r"^tensorrt computes other features here"):
        build_tested_plan(tiny_bundle, "tensorrt")
    assert trt.builds == ["fused"] and cache.list_plans() == []


def test_a_note_that_others_could_have_written_is_refused(
    wrong: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_tested_plan(tiny_bundle, "tensorrt")
    (note,) = cache.plans_folder().glob("*.logits")
    note.write_text("{")
    assert build_bundle_plan(tiny_bundle, "tensorrt").fp32_logits == "", "it is no note"
    note.chmod(0o666)
    with pytest.raises(Exception, match="can be written by others"):
        build_bundle_plan(tiny_bundle, "tensorrt")


def test_the_commands_say_it(wrong: FakeTensorRt, here: Path) -> None:
    built = ok("build", "line.anoco", "--json")
    assert built.err.count("building it again with FP32 logits") == 1
    assert built.json["fp32_logits"].startswith("TensorRT 10.3.0 computes the fused plan wrongly")
    assert "FP32 logits" in ok("build", "line.anoco").out
    said = ok("infer", "line.anoco", "parts", "--engine", "tensorrt", "--json").err
    assert said.count("warning: tensorrt: runs with FP32 logits") == 1
    wrong.wrong_by = WRONG
    assert "with FP32 logits too" in fails(5, "build", "line.anoco", "--force")


IMPORTS = """
import sys
from anoco_edge.cli import main
sys.argv = ["anoco-edge", "build", sys.argv[1], "--engine", "tensorrt-rtx", "--target", "sm86"]
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "onnx", "onnxruntime"}))
"""


@rtx
def test_build_imports_neither_torch_nor_onnx(tiny_bundle: Bundle) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, str(tiny_bundle.path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
