"""Plans are built by the real TensorRT-RTX, which needs no GPU, and by a double of TensorRT."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import tree
from doubles.fake_cuda import FakeCuda, cudaError_t
from doubles.fake_tensorrt import FakeTensorRt, install_tensorrt
from tiny_bundle import make_tiny_bundle, tiny_backbone

from anoco_edge.bundle import Bundle, InputContract
from anoco_edge.errors import (
    AnocoError,
    EnvironmentMissingError,
    UsageError,
)
from anoco_edge.plans import cache
from anoco_edge.plans.build import build_bundle_plan, clean_cache
from anoco_edge.plans.tensorrt_builder import (
    BuiltPlan,
    Profile,
    backbone_profile,
    build_plan,
    parse_targets,
)
from anoco_edge.plans.tensorrt_modules import is_installed
from anoco_edge.scoring.onnx_scorer import scoring_model

pytestmark = pytest.mark.usefixtures("empty_cache")
rtx = pytest.mark.skipif(
    not is_installed("tensorrt-rtx"),
    reason="tensorrt_rtx is not installed (pip install tensorrt-rtx-cu13)",
)
CONTRACT = InputContract(width=64, height=64, stride=16, rows=4, cols=4, dim=8)
TARGETS = ("sm86", "sm89")


def build(
    model: bytes | Path | None = None, profile: Profile | None = None, **options: Any
) -> BuiltPlan:
    model = tiny_backbone(64, 64, 8) if model is None else model
    profile = backbone_profile(CONTRACT, 4) if profile is None else profile
    return build_plan(model, profile, plan_engine="tensorrt-rtx", **{"targets": TARGETS, **options})


def graph(op: str, kind: int, shape: list[Any], **attributes: Any) -> bytes:
    """Return a graph with one node named `culprit`, whose input x has the shape [b, 4]."""
    from onnx import helper

    nodes = [helper.make_node(op, ["x"], ["y"], name="culprit", **attributes)]
    inputs = [helper.make_tensor_value_info("x", 1, ["b", 4])]
    outputs = [helper.make_tensor_value_info("y", kind, shape)]
    made = helper.make_graph(nodes, "g", inputs, outputs)
    opset = [helper.make_opsetid("", 18)]
    content: bytes = helper.make_model(made, opset_imports=opset, ir_version=10).SerializeToString()
    return content


# ---- the real builder


@rtx
def test_a_backbone_builds_and_two_builds_are_the_same() -> None:
    seen: list[tuple[str, int, int]] = []
    first = build(progress=lambda *step: seen.append(step))
    assert first.size == len(first.content) > 10_000
    assert (first.plan_engine, first.targets) == ("tensorrt-rtx", TARGETS)
    assert first.version.startswith("1.") and first.timing_cache == b""
    assert 0 < first.seconds < 60 and first.peak_memory_mb > 10
    assert seen[0] == ("Building engine", 0, seen[0][2]) and len(seen) > 20
    assert all(0 <= step <= total for _, step, total in seen)
    # On a busy machine the builder chose other kernels once, so two of three are enough.
    contents = [first.content, build().content]
    assert contents[0] == contents[1] or build().content in contents


@rtx
def test_the_batch_and_the_targets_are_in_the_plan() -> None:
    plans = [build(), build(targets=["sm86"]), build(profile=backbone_profile(CONTRACT, 2))]
    assert len({plan.content for plan in plans}) == 3


@rtx
@pytest.mark.parametrize(("queries", "dim"), [(16, 8), (2304, 1024)])
def test_the_scoring_graph_builds_for_any_bank(queries: int, dim: int) -> None:
    """It builds in FP32, also at the size of DINOv3-L at 768 px."""
    profile = {
        "query": ((1, dim), (queries, dim), (queries, dim)),
        "reference_units": ((1, dim), (9216, dim), (100_000, dim)),
        "reference_norms": ((1,), (9216,), (100_000,)),
    }
    plan = build(scoring_model(), profile, workspace_mb=4096)
    assert plan.targets == ("sm86", "sm89") and plan.size > 100_000


@rtx
def test_a_graph_with_external_data_builds_from_its_file(tmp_path: Path) -> None:
    import onnx

    model = onnx.load_from_string(tiny_backbone(64, 64, 8))
    onnx.save_model(
        model,
        tmp_path / "backbone.onnx",
        save_as_external_data=True,
        location="backbone.onnx.data",
        size_threshold=0,
    )
    data = tmp_path / "backbone.onnx.data"
    assert data.stat().st_size > 1000
    # Sizes of plans are not compared: on a busy machine the builder may choose other kernels.
    assert build(tmp_path / "backbone.onnx").size > 10_000
    data.unlink()
    with pytest.raises(AnocoError, match="Failed to import initializer"):
        build(tmp_path / "backbone.onnx")


@rtx
def test_a_plan_of_mapped_weights_is_the_plan_of_the_same_bytes(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper

    value, numbers = helper.make_tensor_value_info, np.random.default_rng(0).normal(size=(32, 32))
    made = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, ["b", 32])],
        [value("y", TensorProto.FLOAT, ["b", 32])],
        [numpy_helper.from_array(numbers.astype(np.float32), "w")],
    )
    opset = [helper.make_opsetid("", 18)]
    content = helper.make_model(made, opset_imports=opset, ir_version=10).SerializeToString()
    (tmp_path / "graph.onnx").write_bytes(content)
    shapes = {"x": ((1, 32), (4, 32), (4, 32))}
    options: dict[str, Any] = {"profile": shapes, "targets": ["sm86"]}
    plan = build(content, **options).content
    # On a busy machine the builder may choose other kernels.
    assert any(build(tmp_path / "graph.onnx", **options).content == plan for _ in range(3))


@rtx
def test_a_graph_that_is_refused_is_one_line_with_the_node(capfd: Any) -> None:
    model = graph("NonZero", 7, [2, "n"])
    shapes = {"x": ((1, 4), (1, 4), (2, 4))}
    with pytest.raises(AnocoError) as caught:
        build(model, shapes, name="line.anoco")
    text = str(caught.value)
    assert caught.value.exit_code == 1 and "\n" not in text and len(text) < 400
    assert (
        text.startswith("TensorRT-RTX 1.") and "refuses line.anoco at NonZero 'culprit': " in text
    )
    assert capfd.readouterr() == ("", "")


@rtx
def test_a_graph_that_parses_and_does_not_build() -> None:
    """SM75 has no float32 matrix product (see FACTS), so this graph parses but does not build."""
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    value = helper.make_tensor_value_info
    made = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="culprit")],
        "g",
        [value("x", TensorProto.FLOAT, ["b", 4])],
        [value("y", TensorProto.FLOAT, ["b", 4])],
        [weights],
    )
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(made, opset_imports=opset, ir_version=10).SerializeToString()
    with pytest.raises(AnocoError, match=r"no FP32 matrix products for sm75") as caught:
        build(model, {"x": ((1, 4), (1, 4), (2, 4))}, targets=["sm75"])
    assert caught.value.exit_code == 1


@rtx
@pytest.mark.parametrize(
    ("model", "profile", "words"),
    [
        (b"garbage", None, "Failed to parse the ONNX model"),
        (None, {}, r"has dynamic inputs \['pixels'\], shapes were given for \[\]"),
        (None, {"pixls": ((1,), (1,), (1,))}, r"shapes were given for \['pixls'\]"),
        (None, {"pixels": ((2, 64, 64, 3), (1, 64, 64, 3), (4, 64, 64, 3))}, "MIN<=OPT<=MAX|order"),
    ],
)
def test_what_cannot_be_built_is_said(model: Any, profile: Any, words: str) -> None:
    with pytest.raises(AnocoError, match=words):
        build(model, profile)


@rtx
def test_ctrl_c_ends_the_build_and_leaves_nothing(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "tiny.anoco")
    steps = 0

    def interrupt(*_: object) -> None:
        nonlocal steps
        steps += 1
        time.sleep(0.03)  # so that the signal is noticed long before the build could end
        if steps == 5:
            os.kill(os.getpid(), signal.SIGINT)

    before = tree(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        build_bundle_plan(bundle, "tensorrt-rtx", targets=TARGETS, progress=interrupt)
    assert steps < 30, "the build went on"
    assert tree(tmp_path) == before and cache.list_plans() == []
    assert build_bundle_plan(bundle, "tensorrt-rtx", targets=TARGETS).built


def broken(*_: object) -> None:
    raise BrokenPipeError("nobody looks")


@rtx
def test_a_progress_bar_that_fails_is_told() -> None:
    with pytest.raises(BrokenPipeError, match="nobody looks"):
        build(progress=broken)


def test_targets() -> None:
    for text in ("sm87", "sm110", "86", "", "sm86,"):
        with pytest.raises(UsageError, match=r"sm75, .*built on the Jetson: anoco-edge build"):
            parse_targets(text)
    with pytest.raises(UsageError, match="leave out `targets`"):
        build_plan(b"", {}, plan_engine="tensorrt", targets=["sm86"])
    with pytest.raises(UsageError, match="a batch of 0"):
        backbone_profile(CONTRACT, 0)


# ---- the same code with TensorRT, by a double


def test_tensorrt_builds_for_its_own_gpu(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    ahead = build_bundle_plan(tiny_bundle, "tensorrt", batch=3, workspace_mb=64)
    assert ahead.built and ahead.record.max_batch == 3 and ahead.record.targets == ()
    assert ahead.record.fingerprint.model_dump() == {
        "version": "10.3.0",
        "gpu": "Orin (16 SMs, 8 GB)",
        "capability": "sm87",
        "driver": "cuda 12060",
    }
    assert trt.config.pools == {"workspace": 64 << 20}
    again = build_bundle_plan(tiny_bundle, "tensorrt", batch=3)
    assert not again.built and again.record == ahead.record
    assert build_bundle_plan(tiny_bundle, "tensorrt", batch=3, force=True).built


def test_a_progress_bar_that_fails_ends_the_build(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    with pytest.raises(BrokenPipeError):
        build_bundle_plan(tiny_bundle, "tensorrt", progress=broken)
    assert trt.steps == 1


def test_what_was_measured_helps_the_next_build(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    assert trt.config.timing.content == b""
    build_bundle_plan(tiny_bundle, "tensorrt", batch=2)
    assert trt.config.timing.content == b"10.3.0+"
    build_bundle_plan(tiny_bundle, "tensorrt", batch=3)
    assert trt.config.timing.content == b"10.3.0++"
    cuda.driver = 13000
    build_bundle_plan(tiny_bundle, "tensorrt")
    assert trt.config.timing.content == b"", "measured with another driver"


def test_a_spoilt_timing_cache_is_left_aside(trt: FakeTensorRt) -> None:
    profile = backbone_profile(CONTRACT)
    built = build_plan(
        tiny_backbone(64, 64, 8), profile, plan_engine="tensorrt", timing_cache=b"of 9.0"
    )
    assert built.timing_cache == b"10.3.0+"


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ("Error Code 2: OutOfMemory (Requested 9 GB)", EnvironmentMissingError, "out of memory"),
        ("Error Code 1: Cuda Runtime (no device)", EnvironmentMissingError, "cannot use the GPU"),
        ("Error Code 10: no implementation for node /a", AnocoError, "refuses .*for node /a"),
    ],
)
def test_what_the_builder_complains_of(
    said: str, error: type[AnocoError], words: str, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    trt.refusal = said
    with pytest.raises(AnocoError, match=words) as caught:
        build_bundle_plan(tiny_bundle, "tensorrt")
    assert type(caught.value) is error and "what follows" not in str(caught.value)
    assert cache.list_plans() == []


def test_tensorrt_needs_a_gpu_to_build(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_builder(*_: object) -> None:
        raise TypeError("factory function returned nullptr")

    monkeypatch.setattr(FakeTensorRt, "Builder", no_builder)
    with pytest.raises(EnvironmentMissingError, match="TensorRT cannot build here: factory"):
        build_bundle_plan(tiny_bundle, "tensorrt")
    cuda.count = 0
    with pytest.raises(EnvironmentMissingError, match="there is no NVIDIA GPU"):
        build_bundle_plan(tiny_bundle, "tensorrt")


def test_a_device_that_rtx_does_not_name_gets_a_plan_of_its_own(
    monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda, tiny_bundle: Bundle
) -> None:
    cuda.gpu, cuda.capability = "H100", (9, 0)
    install_tensorrt(monkeypatch, cuda, "tensorrt_rtx", "1.7.1")
    record = build_bundle_plan(tiny_bundle, "tensorrt-rtx").record
    assert record.targets == () and record.fingerprint.gpu == "H100 (16 SMs, 8 GB)"
    cuda.fail["cudaGetDeviceCount"] = cudaError_t.cudaErrorNoDevice
    with pytest.raises(EnvironmentMissingError, match="say with `targets`"):
        build_bundle_plan(tiny_bundle, "tensorrt-rtx")


def test_cleaning_looks_at_what_is_installed(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    record = build_bundle_plan(tiny_bundle, "tensorrt").record
    assert clean_cache() == []
    trt.__version__ = "11.0.0"
    assert record.path in clean_cache() and cache.list_plans() == []
