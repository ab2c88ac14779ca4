"""The TensorRT engine works with doubles of the module and of the GPU's memory."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubles.fake_cuda import FakeCuda, cudaError_t
from doubles.fake_tensorrt import FakeTensorRt, install_tensorrt
from engine_cases import input_batch, open_tensorrt
from tiny_bundle import make_tiny_bundle

from anoco_edge.bundle import Bundle, create_bundle
from anoco_edge.bundle.schema import Plan
from anoco_edge.engines import EngineSettings
from anoco_edge.engines.ort import OnnxRuntimeEngine
from anoco_edge.engines.selftest import check_engine
from anoco_edge.engines.tensorrt import TensorRtEngine, why_not
from anoco_edge.errors import (
    AnocoError,
    BundleError,
    EngineError,
    EnvironmentMissingError,
    ParityError,
    UsageError,
)
from anoco_edge.plans.build import build_bundle_plan, clean_cache

pytestmark = pytest.mark.usefixtures("empty_cache")


def with_plans(bundle: Bundle, path: Path, *plans: Plan, content: bytes) -> Bundle:
    """Copy a bundle and add plans to it."""
    files = {record.path: bundle.read(record) for record in bundle.manifest.files}
    return create_bundle(
        path,
        backbone=bundle.manifest.backbone,
        contract=bundle.manifest.input,
        parity={},
        tools={},
        files={**files, **{plan.path: content for plan in plans}},
        plans=plans,
    )


def rtx_plan(**changes: Any) -> Plan:
    fields = {"path": "plans/sm86.plan", "version": "1.7.1", "target": "sm86", "max_batch": 2}
    return Plan(engine="tensorrt-rtx", **{**fields, **changes})


# ---- what it computes


@pytest.mark.parametrize("count", [1, 2, 3, 5, 0])
def test_features_are_those_of_the_graph_whatever_the_batch(
    count: int, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt", batch=2)
    engine = open_tensorrt(tiny_bundle)
    assert (engine.name, engine.max_batch) == ("tensorrt", 2)
    pixels = input_batch(5)
    found = engine.features(pixels[:count])
    assert found.dtype == np.float32 and found.shape == (count, 16, 8)
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    np.testing.assert_array_equal(found, wanted[:count])
    assert trt.batches == [[], [1], [2], [2, 1], None, [2, 2, 1]][count]


def test_pixels_that_are_not_contiguous(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    mirrored = input_batch(2)[:, :, ::-1]
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(mirrored.copy())
    np.testing.assert_array_equal(open_tensorrt(tiny_bundle).features(mirrored), wanted)


def test_pixels_of_another_size_are_refused(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    wrongs: list[Any] = [np.zeros((1, 32, 64, 3), np.uint8), np.zeros((1, 64, 64, 3))]
    for wrong in wrongs:
        with pytest.raises(UsageError, match=r"takes uint8 of shape \(batch, 64, 64, 3\)"):
            open_tensorrt(tiny_bundle).features(wrong)


def test_the_self_test_judges_the_plan(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    assert check_engine(tiny_bundle, open_tensorrt(tiny_bundle)).min_cosine > 0.99999
    trt.wrong_by = np.linspace(-1, 1, 8, dtype=np.float32)
    with pytest.raises(ParityError, match="tensorrt computes other features here"):
        check_engine(tiny_bundle, open_tensorrt(tiny_bundle), force=True)


def test_another_build_is_tested_anew(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    first = open_tensorrt(tiny_bundle).fingerprint
    assert first.startswith("tensorrt|10.3.0|Orin (16 SMs, 8 GB)|sm87|cuda 12060|")
    build_bundle_plan(tiny_bundle, "tensorrt", batch=2)
    assert open_tensorrt(tiny_bundle).fingerprint != first


# ---- memory


def test_buffers_are_allocated_once_and_given_back(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt", batch=2)
    engine = open_tensorrt(tiny_bundle)
    assert sorted(cuda.buffers.values()) == [2 * 16 * 8 * 4, 2 * 64 * 64 * 3]
    for count in (1, 2, 3):
        engine.features(input_batch(count))
    assert cuda.calls.count("cudaMalloc") == 2
    assert cuda.calls.count("cudaStreamCreateWithFlags") == 1 == len(cuda.streams)
    engine.close()
    assert not cuda.buffers and not cuda.streams and not cuda.host
    engine.close()  # closing twice does no harm


def test_an_engine_that_is_dropped_gives_its_memory_back(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    engine = open_tensorrt(tiny_bundle)
    assert cuda.buffers
    del engine
    gc.collect()
    assert not cuda.buffers and not cuda.streams


@pytest.mark.parametrize(
    ("call", "status", "error", "words"),
    [
        (
            "cudaMalloc",
            "MemoryAllocation",
            EnvironmentMissingError,
            "not enough memory (cudaMalloc",
        ),
        ("cudaStreamCreateWithFlags", "IllegalAddress", EngineError, "cudaStreamCreateWithFlags"),
        ("cudaMemcpyAsync", "IllegalAddress", EngineError, "the CUDA call cudaMemcpyAsync failed"),
        ("cudaStreamSynchronize", "IllegalAddress", EngineError, "cudaStreamSynchronize failed"),
    ],
)
def test_every_cuda_call_that_fails_is_named(
    call: str,
    status: str,
    error: type[AnocoError],
    words: str,
    cuda: FakeCuda,
    trt: FakeTensorRt,
    tiny_bundle: Bundle,
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    cuda.fail[call] = cudaError_t[f"cudaError{status}"]
    with pytest.raises(AnocoError, match=re.escape(words)) as caught:
        open_tensorrt(tiny_bundle).features(input_batch(1))
    assert type(caught.value) is error and f"cudaError{status}" in str(caught.value)


def test_a_run_that_tensorrt_refuses(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    trt.broken_run = True
    with pytest.raises(AnocoError, match="TensorRT failed at execute_async_v3"):
        open_tensorrt(tiny_bundle).features(input_batch(1))


# ---- which plan


def test_without_a_plan_it_says_which_command_to_run(
    trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    with pytest.raises(
        BundleError, match=r"no plan of .*tiny.anoco for TensorRT 10.3.0 on Orin"
    ) as e:
        open_tensorrt(tiny_bundle)
    assert e.value.hint == f"run: anoco-edge build {tiny_bundle.path}, with `engine='tensorrt'`"
    assert why_not("tensorrt") == "" and why_not("tensorrt", tiny_bundle) == str(e.value)
    build_bundle_plan(tiny_bundle, "tensorrt")
    assert why_not("tensorrt", tiny_bundle) == ""


def change_gpu(cuda: FakeCuda, trt: FakeTensorRt) -> None:
    cuda.gpu = "Orin Nano"


def change_size(cuda: FakeCuda, trt: FakeTensorRt) -> None:
    cuda.multiprocessors = 8  # an Orin Nano calls itself Orin, as an AGX Orin does


def change_driver(cuda: FakeCuda, trt: FakeTensorRt) -> None:
    cuda.driver = 13000


def change_version(cuda: FakeCuda, trt: FakeTensorRt) -> None:
    trt.__version__ = "10.4.0"


@pytest.mark.parametrize("change", [change_gpu, change_size, change_driver, change_version])
def test_a_plan_of_another_machine_is_not_used(
    change: Callable[[FakeCuda, FakeTensorRt], None],
    cuda: FakeCuda,
    trt: FakeTensorRt,
    tiny_bundle: Bundle,
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    change(cuda, trt)
    with pytest.raises(BundleError, match="there is no plan"):
        open_tensorrt(tiny_bundle)


def test_a_plan_from_before_sizes_were_recorded_is_built_again(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    cuda.multiprocessors = 0  # so that the size is left out
    old = build_bundle_plan(tiny_bundle, "tensorrt").record
    assert old.fingerprint.gpu == "Orin"
    cuda.multiprocessors = 16
    words = "an older one does not say for which size of GPU it was built; run: anoco-edge build"
    with pytest.raises(BundleError, match=words):
        open_tensorrt(tiny_bundle)
    assert build_bundle_plan(tiny_bundle, "tensorrt").built
    assert open_tensorrt(tiny_bundle).fingerprint.startswith("tensorrt|10.3.0|Orin (16 SMs, 8 GB)")
    assert old.path in clean_cache()


def test_of_several_plans_the_one_for_the_largest_batch(
    trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    for batch in (1, 4, 2):
        build_bundle_plan(tiny_bundle, "tensorrt", batch=batch)
    assert open_tensorrt(tiny_bundle).max_batch == 4
    small = build_bundle_plan(tiny_bundle, "tensorrt", batch=1).record
    assert TensorRtEngine("tensorrt", tiny_bundle, EngineSettings(), plan=small).max_batch == 1


def test_a_changed_plan_is_never_loaded(trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    record = build_bundle_plan(tiny_bundle, "tensorrt").record
    content = record.path.read_bytes()
    record.path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BundleError, match="is not the plan that was built here"):
        open_tensorrt(tiny_bundle)
    assert trt.deserialised == 0


def test_a_plan_of_another_backbone_is_found_out(
    trt: FakeTensorRt, tiny_bundle: Bundle, tmp_path: Path
) -> None:
    trt.input.shape = (-1, 32, 32, 3)
    other = make_tiny_bundle(tmp_path / "other.anoco", size=(32, 32))
    record = build_bundle_plan(other, "tensorrt").record
    with pytest.raises(BundleError, match="is not a plan of this bundle's backbone"):
        TensorRtEngine("tensorrt", tiny_bundle, EngineSettings(), plan=record)


@pytest.mark.parametrize(
    ("said", "error"),
    [("Error Code 2: OutOfMemory", EnvironmentMissingError), ("Magic tag differs", BundleError)],
)
def test_a_plan_that_cannot_be_loaded(
    said: str, error: type[AnocoError], trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    trt.refusal = said
    with pytest.raises(error, match=said):
        open_tensorrt(tiny_bundle)


def test_an_rtx_plan_comes_with_the_bundle(
    monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda, tiny_bundle: Bundle, tmp_path: Path
) -> None:
    cuda.gpu, cuda.capability = "RTX 3060", (8, 6)
    trt = install_tensorrt(monkeypatch, cuda, "tensorrt_rtx", "1.7.1")
    shapes = [[1, 64, 64, 3], [2, 64, 64, 3], [2, 64, 64, 3]]
    graph = tiny_bundle.read(tiny_bundle.file("backbone.onnx"))
    content = f'{{"pixels": {shapes}}}'.encode() + b"\0" + graph
    for number, wrong in enumerate(({"version": "1.7.0"}, {"target": "sm89"})):
        other = with_plans(
            tiny_bundle, tmp_path / f"{number}.anoco", rtx_plan(**wrong), content=content
        )
        assert "there is no plan" in why_not("tensorrt-rtx", other)
    bundle = with_plans(tiny_bundle, tmp_path / "own.anoco", rtx_plan(), content=content)
    engine = open_tensorrt(bundle, "tensorrt-rtx")
    assert engine.max_batch == 2 and engine.features(input_batch(3)).shape == (3, 16, 8)
    (bundle.path / "plans/sm86.plan").write_bytes(content[:-1] + b"!")
    loaded = trt.deserialised
    with pytest.raises(BundleError, match="its checksum differs"):
        open_tensorrt(bundle, "tensorrt-rtx")
    assert trt.deserialised == loaded


def test_an_rtx_plan_of_the_cache_runs_on_every_gpu_of_its_targets(
    monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda, tiny_bundle: Bundle
) -> None:
    cuda.gpu, cuda.capability = "RTX 3060", (8, 6)
    trt = install_tensorrt(monkeypatch, cuda, "tensorrt_rtx", "1.7.1")
    trt.ComputeCapability.SM86 = 86
    monkeypatch.setattr(
        "doubles.fake_tensorrt.Config.set_compute_capability", lambda *_: True, raising=False
    )
    record = build_bundle_plan(tiny_bundle, "tensorrt-rtx").record
    assert record.targets == ("sm86",) and record.fingerprint.gpu == ""
    cuda.gpu, cuda.driver = "RTX A4000", 13000
    assert open_tensorrt(tiny_bundle, "tensorrt-rtx").features(input_batch(1)).shape == (1, 16, 8)
    cuda.capability = (8, 9)
    assert "there is no plan" in why_not("tensorrt-rtx", tiny_bundle)


# ---- what is missing


def test_without_the_module(monkeypatch: pytest.MonkeyPatch, tiny_bundle: Bundle) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(EnvironmentMissingError, match="not installed; on a Jetson it comes with"):
        open_tensorrt(tiny_bundle)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    assert "pip install 'anoco-edge[rtx]'" in why_not("tensorrt-rtx")


def test_without_cuda_python(trt: FakeTensorRt, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("cuda.bindings.runtime", "pycuda.driver"):
        monkeypatch.setitem(sys.modules, module, None)
    why = why_not("tensorrt")
    assert "asks for cuda-python, which is not installed; leave it unset" in why
    assert "pip install 'anoco-edge[cuda-python]'" in why


@pytest.mark.parametrize("status", ["NoDevice", "InsufficientDriver"])
def test_without_a_gpu(status: str, cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    cuda.fail["cudaGetDeviceCount"] = cudaError_t[f"cudaError{status}"]
    with pytest.raises(EnvironmentMissingError, match="there is no NVIDIA") as caught:
        open_tensorrt(tiny_bundle)
    assert why_not("tensorrt", tiny_bundle) == str(caught.value)


def test_without_a_driver_library(
    cuda: FakeCuda, trt: FakeTensorRt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_library() -> None:
        raise RuntimeError("libcuda.so.1 not found")

    monkeypatch.setattr(FakeCuda, "cudaGetDeviceCount", lambda _: no_library())
    assert why_not("tensorrt").startswith(
        "there is no NVIDIA driver, or it is too old (cudaGetDeviceCount: libcuda"
    )


def test_the_doubles_would_notice_a_missing_wait(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(2)[1:]
    engine.features(input_batch(1))
    with engine.on_device(pixels) as features:
        wanted = cuda.memory.read(features.pointer, features.nbytes)
    engine.features(input_batch(1))
    with monkeypatch.context() as patch:
        patch.setattr(engine._memory, "wait", lambda: None)
        with engine.on_device(pixels) as features:
            assert cuda.memory.read(features.pointer, features.nbytes) != wanted
    engine._memory.wait()
