"""With engine and scorer on one GPU, features stay there from pixels to verdicts.

ONNX Runtime stands for TensorRT and the simulated driver for CUDA, and both use its memory. The
scorer is the real one.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import fails, ok
from doubles.fake_cuda import FakeCuda
from doubles.fake_ort_gpu import install_ort_gpu
from doubles.fake_pycuda import FakePycuda, OutOfMemory, install_pycuda
from doubles.fake_tensorrt import FakeTensorRt
from garbage import lives_without
from tiny_bundle import textured_picture

from anoco_edge.bundle import Bundle
from anoco_edge.detector import Detector
from anoco_edge.diagnostics.device_report import device_table, read_device_report
from anoco_edge.diagnostics.device_report.table import NONE_YET
from anoco_edge.engines import EngineSettings
from anoco_edge.engines.ort_gpu import NAMES
from anoco_edge.engines.tensorrt import TensorRtEngine, why_not
from anoco_edge.errors import AnocoError, EnvironmentMissingError, UsageError
from anoco_edge.pipeline.energy import EnergyReader
from anoco_edge.plans.build import build_bundle_plan
from anoco_edge.plans.device import current_device
from anoco_edge.scoring import References, open_scorer, score_patches

pytestmark = pytest.mark.usefixtures("use_simulated_driver", "empty_cache")
FEATURES = 16 * 8 * 4  # bytes of one picture's features


def pictures(count: int) -> Any:
    return np.stack([textured_picture(k, 64, 64) for k in range(count)])


def build(bundle: str | Path, batch: int = 1) -> None:
    build_bundle_plan(Bundle.open(bundle), "tensorrt", batch=batch)


def scores(report: Any) -> list[float]:
    return [row["score"] for row in report["results"]]


# ---- the whole pipeline


@pytest.mark.parametrize("batch", [1, 2])
def test_infer_end_to_end(trt: FakeTensorRt, cuda: FakeCuda, here: Path, batch: int) -> None:
    build("line.anoco", batch)
    options = ("--engine", "tensorrt", "--json")
    wanted = ok("infer", "line.anoco", "parts", "--engine", "onnxruntime", "--json").json
    on_cpu = ok("infer", "line.anoco", "parts", "--scorer", "onnx", *options).json
    np.testing.assert_allclose(scores(on_cpu), scores(wanted), rtol=1e-4)
    ok("infer", "line.anoco", "parts", "--scorer", "cuda", *options)  # runs the self-test of both
    cuda.copied.clear()
    on_gpu = ok("infer", "line.anoco", "parts", "--scorer", "cuda", *options).json
    np.testing.assert_allclose(scores(on_gpu), scores(wanted), rtol=1e-4)
    for ours, theirs in zip(on_gpu["results"], wanted["results"], strict=True):
        assert ours["verdict"] == theirs["verdict"]
        for key in ("reference", "patch", "reference_patch"):
            assert ours["evidence"][key] == theirs["evidence"][key]
    assert cuda.copied == [], "no feature came back to the processor"


def test_the_memory_of_a_detector_that_is_dropped_is_free_at_once(
    trt: FakeTensorRt, cuda: FakeCuda, here: Path
) -> None:
    build("line.anoco")
    bundle = Bundle.open("line.anoco")

    def used() -> Detector:
        detector = Detector(bundle, engine="tensorrt", scorer="cuda")
        detector.inspect(next(Path("good").iterdir()))
        return detector

    assert not lives_without(used)
    assert not lives_without(lambda: used()._pipeline)


def test_bench_end_to_end(trt: FakeTensorRt, here: Path) -> None:
    build("line.anoco")
    args = ("--engine", "tensorrt", "--scorer", "cuda", "--frames", 4, "--profile", "--json")
    report = ok("bench", "line.anoco", *args).json
    assert report["settings"]["engine"].startswith("tensorrt (")
    assert report["settings"]["scorer"].startswith("cuda (")
    assert all(report["stages"][stage]["p99"] > 0 for stage in ("backbone", "scoring", "total"))


def test_an_engine_that_is_not_captured_is_told_to_the_user(trt: FakeTensorRt, here: Path) -> None:
    build("line.anoco")
    args = ("--engine", "tensorrt", "--scorer", "cuda")
    text = "warning: tensorrt: not captured into a CUDA graph, so it is enqueued for every batch"
    captured = ok("infer", "line.anoco", "parts", *args)
    assert "CUDA graph" not in captured.err
    assert (
        "remarks" not in ok("bench", "line.anoco", *args, "--frames", 2, "--json").json["settings"]
    )
    trt.refuses_capture = "no capture today"
    assert ok("infer", "line.anoco", "parts", *args).err.count(text) == 1
    ran = ok("bench", "line.anoco", *args, "--frames", 2, "--json")
    assert ran.err.count(text) == 1
    assert "no capture today" in ran.json["settings"]["remarks"]
    report = ok("device-report", "line.anoco", *args, "--frames", 2, "--json")
    assert "no capture today" in report.json["frames"]["settings"]["remarks"]
    (page,) = Path("device-report").glob("*.md")
    assert "- tensorrt: not captured into a CUDA graph" in page.read_text()


def test_only_what_counts_is_scored(
    trt: FakeTensorRt, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("line.anoco")
    ok("product", "set", "line.anoco", "--roi", "0,0,50,50")
    bundle, picture = Bundle.open("line.anoco"), "good/part-0.png"
    (picture,) = sorted(map(str, Path("good").iterdir()))[:1]
    wanted = Detector(bundle, engine="onnxruntime", scorer="reference").inspect(picture)
    assert 0 < wanted.scored.sum() < wanted.scored.size
    # A patch outside the region may be anything.
    outside = np.zeros((16, 8), np.float32)
    outside[~wanted.scored.reshape(-1)] = np.nan
    trt.wrong_by = outside
    monkeypatch.setattr("anoco_edge.engines.opening.check_engine", lambda *_: None)
    monkeypatch.setattr("anoco_edge.pipeline.python.check_device_scoring", lambda *_: None)
    found = Detector(bundle, engine="tensorrt", scorer="cuda").inspect(picture)
    np.testing.assert_allclose(found.energy, wanted.energy, rtol=1e-4, atol=1e-6)
    assert (found.anchor == wanted.anchor).all()


def test_features_in_half_precision(trt: FakeTensorRt, here: Path) -> None:
    trt.type_out = "float16"
    build("line.anoco")
    found = ok("infer", "line.anoco", "parts", "--engine", "tensorrt", "--scorer", "cuda", "--json")
    wanted = ok("infer", "line.anoco", "parts", "--engine", "onnxruntime", "--json")
    np.testing.assert_allclose(scores(found.json), scores(wanted.json), rtol=0.05)


def test_views_and_tiles_take_the_road_that_they_can(
    trt: FakeTensorRt, cuda: FakeCuda, here: Path
) -> None:
    build("line.anoco", 2)
    ok("product", "set", "line.anoco", "--tiles", "2x2", "--overlap", "16")
    bundle, (first, *_) = Bundle.open("line.anoco"), sorted(Path("parts").iterdir())
    cuda.copied.clear()
    tiled = Detector(bundle, engine="tensorrt", scorer="cuda").inspect(first)
    assert cuda.copied, "tiles are put together on the processor"
    wanted = Detector(bundle, engine="onnxruntime", scorer="reference").inspect(first)
    np.testing.assert_allclose(tiled.energy, wanted.energy, rtol=1e-3, atol=1e-6)
    ok("product", "set", "line.anoco", "--tiles", "none", "--tta", "paper", "--yes")
    bundle = Bundle.open("line.anoco")
    viewed = Detector(bundle, engine="tensorrt", scorer="cuda").inspect(first)
    wanted = Detector(bundle, engine="onnxruntime", scorer="reference").inspect(first)
    assert viewed.score == pytest.approx(wanted.score, rel=1e-3)


def test_a_picture_without_signal_does_not_stop_the_others(
    trt: FakeTensorRt, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("line.anoco", 2)
    detector = Detector(Bundle.open("line.anoco"), engine="tensorrt", scorer="cuda")
    good = textured_picture(3)
    real = EnergyReader._score

    def one_bad(self: Any, scored: Any, features: Any) -> Any:
        calls.append(1)
        return AnocoError("no signal") if len(calls) == 2 else real(self, scored, features)

    calls: list[int] = []
    monkeypatch.setattr(EnergyReader, "_score", one_bad)
    first, second, third = detector.inspect_many([good, good, good], batch=3)
    assert isinstance(second, AnocoError) and not isinstance(first, AnocoError)
    assert not isinstance(third, AnocoError) and third.score == first.score


@pytest.mark.parametrize("name", NAMES)
def test_onnxruntimes_gpu_engines_keep_features_too(
    name: str, cuda: FakeCuda, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")  # restored after the test
    wanted = ok("infer", "line.anoco", "parts", "--engine", "onnxruntime", "--json").json
    gpu = install_ort_gpu(monkeypatch, cuda.memory)
    args = ("infer", "line.anoco", "parts", "--engine", name, "--scorer", "cuda", "--json")
    ok(*args)  # includes the self-test, which reads features
    gpu.fetched = 0
    np.testing.assert_allclose(scores(ok(*args).json), scores(wanted), rtol=1e-4)
    assert gpu.fetched == 0 and gpu.runs > 0, "no feature came back to the processor"


# ---- arrays of other libraries


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_arrays_on_the_gpu_are_scored_there(cuda: FakeCuda, kind: Any) -> None:
    rng = np.random.default_rng(5)
    references = rng.normal(size=(60, 8)).astype(kind)
    query = rng.normal(size=(20, 8)).astype(kind)
    pointer = cuda.memory.allocate(query.nbytes)
    cuda.memory("cuMemcpyHtoD_v2", pointer, query.ctypes.data, query.nbytes)
    interface = {"version": 3, "shape": (20, 8), "typestr": query.dtype.str, "stream": None}
    array: Any = SimpleNamespace(__cuda_array_interface__={**interface, "data": (pointer, False)})
    found = score_patches(array, references, scorer="cuda")
    wanted = score_patches(query, references, scorer="reference")
    np.testing.assert_allclose(found.energy, wanted.energy, rtol=1e-3)
    np.testing.assert_array_equal(found.anchor, wanted.anchor)
    bank, _ = References.of(references)
    some = open_scorer("cuda", bank).score_rows(array, np.array([3, 7]))  # type: ignore[attr-defined]
    np.testing.assert_allclose(some.energy, wanted.energy[[3, 7]], rtol=1e-3)
    with pytest.raises(UsageError, match=r'the scorer reference does not reach; use scorer="cuda"'):
        score_patches(array, references, scorer="reference")
    cuda.memory.free(pointer)


# ---- pycuda


@pytest.fixture
def pycuda(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda, trt: FakeTensorRt) -> FakePycuda:
    return install_pycuda(monkeypatch, cuda)


def test_pycuda_serves_as_well(pycuda: FakePycuda, here: Path) -> None:
    assert current_device().label == "Orin (16 SMs, 8 GB)" and why_not("tensorrt") == ""
    build("line.anoco", 2)
    wanted = ok("infer", "line.anoco", "parts", "--engine", "onnxruntime", "--json").json
    args = ("infer", "line.anoco", "parts", "--engine", "tensorrt", "--json")
    for scorer in ("onnx", "cuda"):
        found = ok(*args, "--scorer", scorer).json
        np.testing.assert_allclose(scores(found), scores(wanted), rtol=1e-4)
    assert not pycuda.stack, "no context stays current"
    said = ok(*args, "--scorer", "cuda").err
    assert said.count("enqueued for every batch (pycuda has no CUDA graphs)") == 1


def test_pycuda_gives_everything_back(pycuda: FakePycuda, tiny_bundle: Bundle) -> None:
    build(tiny_bundle.path)
    engine = TensorRtEngine("tensorrt", tiny_bundle, EngineSettings())
    engine.features(pictures(2))
    assert pycuda.retained == 1 and len(pycuda.buffers) == 2
    engine.close()
    assert (pycuda.retained, pycuda.buffers, pycuda.streams) == (0, {}, set())
    assert not pycuda.host
    engine.close()  # closing twice does no harm


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("cuInit", "no CUDA-capable device is detected", "there is no NVIDIA GPU (cuInit"),
        ("cuMemAlloc", OutOfMemory("cuMemAlloc failed"), "not enough memory (cuMemAlloc"),
        ("cuStreamCreate", "illegal", "the CUDA call cuStreamCreate failed: illegal"),
        ("cuMemHostAlloc", OutOfMemory("cuMemHostAlloc"), "not enough memory (cuMemHostAlloc"),
        ("cuMemcpyHtoDAsync", "lost", "the CUDA call cuMemcpyHtoDAsync failed: lost"),
        ("cuMemcpyDtoHAsync", "lost", "the CUDA call cuMemcpyDtoHAsync failed: lost"),
        ("cuStreamSynchronize", "lost", "the CUDA call cuStreamSynchronize failed: lost"),
    ],
)
def test_every_call_of_pycuda_that_fails_is_named(
    call: str, error: Any, words: str, pycuda: FakePycuda, tiny_bundle: Bundle
) -> None:
    build(tiny_bundle.path)
    pycuda.fail[call] = error if isinstance(error, Exception) else pycuda.Error(error)
    with pytest.raises(AnocoError) as caught:
        TensorRtEngine("tensorrt", tiny_bundle, EngineSettings()).features(pictures(1))
    assert words in str(caught.value) and not pycuda.stack
    pycuda.fail.clear()


def test_pycuda_without_a_gpu(pycuda: FakePycuda) -> None:
    pycuda.count = 0
    with pytest.raises(EnvironmentMissingError, match="there is no NVIDIA GPU"):
        current_device()


# ---- device-report


def test_a_report_from_the_simulated_gpu(trt: FakeTensorRt, cuda: FakeCuda, here: Path) -> None:
    ran = ok("device-report", "line.anoco", "--frames", 3, "--json", "--out", "sent")
    report = ran.json
    assert (report["engine"], report["scorer"]) == ("tensorrt", "cuda")
    assert report["plan"]["built_now"] and report["selftest"]["min_cosine"] > 0.9999
    assert [row["disagree"] for row in report["agreement"]] == [0, 0]
    assert report["frames"]["stages"]["scoring"]["p50"] > 0
    assert report["fused"] == {
        "fused": 1,
        "kernels": 2,
        "copies": 1,
        "activation_bytes": 512,
        "blocks": None,
    }
    assert report["gemm"]["size"] == 64 and report["gemm"]["tflops"] > 0
    assert [row["picture"] for row in report["hard_pictures"]] == ["the wrong part", "no part"]
    assert report["cameras"]["frames"] == 6 and report["cameras"]["changes"] >= 1
    assert report["not_measured"] == report["problems"] == []
    assert report["simulated"] is True and report["device"]["capability"] == "sm87"
    (data,), (page,) = Path("sent").glob("*.json"), Path("sent").glob("*.md")
    assert "**Simulated GPU: these figures say nothing about a device.**" in page.read_text()
    assert device_table([read_device_report(data)]) == NONE_YET
    told = json.loads(data.read_text()) | {"simulated": False}
    data.write_text(json.dumps(told))
    assert "| tensorrt | cuda | python |" in device_table([read_device_report(data)])
    again = ok("device-report", "line.anoco", "--frames", 3, "--json").json
    assert again["plan"]["built_now"] is False


def test_a_plan_that_computes_nonsense_is_in_the_report(trt: FakeTensorRt, here: Path) -> None:
    trt.wrong_by = np.linspace(-1, 1, 8, dtype=np.float32)
    line = fails(5, "device-report", "line.anoco", "--frames", 2)
    assert "tensorrt computes other features here" in line
    (data,) = Path("device-report").glob("*.json")
    assert read_device_report(data).problems
