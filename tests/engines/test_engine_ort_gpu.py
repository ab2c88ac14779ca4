"""ONNX Runtime's GPU providers are refused where they do not run, and work with a double."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from command_line import fails, ok
from doubles.fake_ort_gpu import FakeOrtGpu, install_ort_gpu
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.bundle import Bundle
from anoco_edge.diagnostics.doctor import engine_findings
from anoco_edge.engines import EngineSettings, open_engine
from anoco_edge.engines.ort_gpu import NAMES, OnnxRuntimeGpuEngine, why_not
from anoco_edge.errors import AnocoError, BundleError, EnvironmentMissingError, UsageError
from anoco_edge.scoring.device_array import DeviceArray

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeOrtGpu:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")  # restored after the test
    return install_ort_gpu(monkeypatch)


def pictures(count: int) -> Any:
    return np.stack([textured_picture(k, 64, 64) for k in range(count)])


def opened(bundle: Bundle, name: str = "onnxruntime-cuda") -> OnnxRuntimeGpuEngine:
    return OnnxRuntimeGpuEngine(name, bundle, EngineSettings())


def read(array: DeviceArray) -> np.ndarray:
    """Read the double's GPU memory, which is ordinary memory."""
    content = ctypes.string_at(array.pointer, array.nbytes)
    return np.frombuffer(content, array.dtype).reshape(array.shape)


# ---- here, where there is none


@pytest.mark.parametrize("name", NAMES)
def test_this_onnxruntime_refuses_and_says_what_to_do(tiny_bundle: Bundle, name: str) -> None:
    with pytest.raises(EnvironmentMissingError, match=r"has no (CUDA|Tensorrt)ExecutionProvider"):
        open_engine(name, tiny_bundle)
    assert "pip install 'anoco-edge[gpu]'" in why_not(name)


def test_infer_never_falls_back(here: Any) -> None:
    line = fails(3, "infer", "line.anoco", "parts", "--engine", "onnxruntime-cuda")
    assert "has no CUDAExecutionProvider" in line and "anoco-edge[gpu]" in line


def test_doctor_says_why_not() -> None:
    found = {finding.name: finding for finding in engine_findings()}
    for name in NAMES:
        assert found[name].state == "absent" and "ExecutionProvider" in found[name].detail


def test_other_names_are_refused() -> None:
    with pytest.raises(UsageError, match="use onnxruntime-cuda or onnxruntime-tensorrt"):
        why_not("onnxruntime-rocm")


# ---- with a double


@pytest.mark.parametrize("name", NAMES)
def test_features_are_those_of_the_graph(gpu: FakeOrtGpu, tiny_bundle: Bundle, name: str) -> None:
    wanted = open_engine("onnxruntime", tiny_bundle).features(pictures(19))
    engine = opened(tiny_bundle, name)
    assert why_not(name) == "" and engine.name == name
    for count in (0, 1, 3, 19):
        found = engine.features(pictures(19)[:count])
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, wanted[:count])
    assert gpu.runs == 1 + 1 + 3  # batches of 8, 8 and 3 for 19 pictures


def test_buffers_stay_on_the_gpu_and_are_made_once(gpu: FakeOrtGpu, tiny_bundle: Bundle) -> None:
    engine = opened(tiny_bundle)
    for _ in range(3):
        engine.features(pictures(2))
    assert gpu.allocated == [(2, 64, 64, 3), (2, 16, 8)]
    wanted = engine.features(pictures(2))
    with engine.on_device(pictures(2)) as features:
        assert features.shape == (2, 16, 8) and features.dtype == np.float32
        np.testing.assert_array_equal(read(features), wanted)
        np.testing.assert_array_equal(read(features[1]), wanted[1])
    assert len(gpu.allocated) == 2


def test_tf32_is_off_and_the_cache_is_the_users_own(
    gpu: FakeOrtGpu, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    opened(tiny_bundle)
    assert gpu.options["CUDAExecutionProvider"]["use_tf32"] == "0"
    opened(tiny_bundle, "onnxruntime-tensorrt")
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"
    options = gpu.options["TensorrtExecutionProvider"]
    assert options["trt_profile_max_shapes"] == "pixels:8x64x64x3"
    assert options["trt_fp16_enable"] == "0"
    folder = Path(options["trt_engine_cache_path"])
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(BundleError, match="can be written by others"):
        opened(tiny_bundle, "onnxruntime-tensorrt")


def half_vit(path: Path, precision: str = "fp16", architecture: str = "vit_small") -> Bundle:
    """Return a bundle that says it is a transformer in half precision."""
    bundle = make_tiny_bundle(path)
    backbone = bundle.manifest.backbone.model_copy(
        update={"precision": precision, "architecture": architecture}
    )
    return Bundle(bundle.path, bundle.manifest.model_copy(update={"backbone": backbone}))


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_a_transformer_in_half_precision_keeps_its_types(
    gpu: FakeOrtGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    bundle = half_vit(tmp_path / "vit.anoco", precision)
    name = "onnxruntime-tensorrt"
    monkeypatch.setattr(onnxruntime, "__version__", "1.23.2")
    assert why_not(name, bundle) == "" and opened(bundle, name)
    options = gpu.options["TensorrtExecutionProvider"]
    assert (options["trt_fp16_enable"], options["trt_int8_enable"]) == ("0", "0")
    monkeypatch.setattr(onnxruntime, "__version__", "1.18.1")
    said = rf"chooses its own types for tiny in {precision}: that takes onnxruntime 1\.20 or newer"
    with pytest.raises(EnvironmentMissingError, match=said):
        opened(bundle, name)
    assert "chooses its own types" in why_not(name, bundle)
    assert why_not("onnxruntime-cuda", bundle) == ""
    assert opened(half_vit(tmp_path / "cnn.anoco", precision, "wide_resnet50_2"), name)
    options = gpu.options["TensorrtExecutionProvider"]
    assert options["trt_fp16_enable"] == "1"
    assert options["trt_int8_enable"] == ("1" if precision == "int8" else "0")


@pytest.mark.parametrize("name", NAMES)
def test_a_provider_that_is_listed_and_does_not_start(
    gpu: FakeOrtGpu, tiny_bundle: Bundle, name: str
) -> None:
    gpu.starts = ()
    with pytest.raises(EnvironmentMissingError, match=r"lists .*but it does not start here"):
        opened(tiny_bundle, name)
    gpu.starts = ("CUDAExecutionProvider",)  # that is not enough for the other provider
    if name == "onnxruntime-tensorrt":
        with pytest.raises(EnvironmentMissingError, match="does not start"):
            opened(tiny_bundle, name)


def test_what_goes_wrong_is_said(gpu: FakeOrtGpu, tiny_bundle: Bundle) -> None:
    engine = opened(tiny_bundle)
    with pytest.raises(UsageError, match=r"takes uint8 of shape \(batch, 64, 64, 3\)"):
        engine.features(np.zeros((1, 32, 64, 3), np.uint8))
    gpu.broken_run = "CUDA failure 2: out of memory"
    with pytest.raises(AnocoError, match="onnxruntime-cuda failed on a batch of 1: CUDA failure"):
        engine.features(pictures(1))
    assert not engine._lock.locked()


def test_infer_end_to_end(gpu: FakeOrtGpu, here: Any) -> None:
    report = ok("infer", "line.anoco", "parts", "--engine", "onnxruntime-cuda", "--json").json
    wanted = ok("infer", "line.anoco", "parts", "--engine", "onnxruntime", "--json").json
    assert [r["score"] for r in report["results"]] == [r["score"] for r in wanted["results"]]
    assert gpu.runs >= 1
