"""The self-test follows a picture on the device: its pixels, the captured graph, its energies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import fails, ok
from doubles.fake_cuda import FakeCuda
from doubles.fake_tensorrt import FakeTensorRt
from engine_cases import open_tensorrt

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings
from anoco_edge.engines.device_scoring import check_device_scoring, why_not_on_gpu
from anoco_edge.engines.ort import OnnxRuntimeEngine
from anoco_edge.engines.plan_trial import build_tested_plan
from anoco_edge.engines.selftest import check_engine, read_selftest
from anoco_edge.engines.tensorrt import TensorRtEngine
from anoco_edge.errors import ParityError
from anoco_edge.plans import cache
from anoco_edge.plans.build import build_bundle_plan
from anoco_edge.scoring import cuda as cuda_scorer
from anoco_edge.scoring.cuda import CudaScorer

pytestmark = pytest.mark.usefixtures("use_simulated_driver", "empty_cache")


@pytest.fixture
def engine(trt: FakeTensorRt, tiny_bundle: Bundle) -> Iterator[TensorRtEngine]:
    build_bundle_plan(tiny_bundle, "tensorrt")
    opened = open_tensorrt(tiny_bundle)
    yield opened
    opened.close()


def test_pixels_and_graph_are_compared_bit_for_bit(
    engine: TensorRtEngine, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    found = check_engine(tiny_bundle, engine)
    assert found.device_path == ("pixels on the device", "captured graph")
    again = check_engine(tiny_bundle, engine)
    assert again.remembered and again.device_path == found.device_path
    assert trt.captured == [1] and trt.contexts == 1, "it needs no second context"
    pixels, _, _ = read_selftest(tiny_bundle)
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    trace = engine.trace(pixels)  # also of an engine that has a graph already
    assert trace.sent.tobytes() == trace.arrived.tobytes() == pixels.tobytes()
    np.testing.assert_array_equal(trace.plain, wanted)
    assert trace.launched is not None and trace.launched.tobytes() == wanted.tobytes()
    assert trt.captured == [1, 1] and trt.contexts == 1


def test_a_graph_that_computes_something_else_is_refused(
    trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    trt.half_attention = True
    trt.wrong_captured = np.float32(1e-6)  # far below what the limits of features allow
    with pytest.raises(ParityError, match="other features as a CUDA graph than without one: "):
        build_tested_plan(tiny_bundle, "tensorrt")
    assert trt.builds == ["fused"] and cache.list_plans() == [], "FP32 logits would not help"


def test_where_nothing_is_captured_the_rest_is_compared(
    engine: TensorRtEngine, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    trt.refuses_capture = "no capture today"
    assert check_engine(tiny_bundle, engine).device_path == ("pixels on the device",)


def test_pixels_that_arrive_otherwise_are_noticed(
    engine: TensorRtEngine, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = engine._memory
    real = memory.copy_in

    def one_bit_wrong(pointer: int, array: Any) -> None:
        changed = memory.allocate_host(array.nbytes)
        changed[...] = array
        changed[7] ^= 1
        real(pointer, changed)

    monkeypatch.setattr(memory, "copy_in", one_bit_wrong)
    with pytest.raises(ParityError, match=r"other pixels on the device .*: 1 of 12288 bytes"):
        check_engine(tiny_bundle, engine)


# ---- energies


def wrong_energies(patch: pytest.MonkeyPatch) -> None:
    real = CudaScorer.score_rows

    def score_rows(self: CudaScorer, query: Any, rows: Any) -> Any:
        found = real(self, query, rows)
        found.energy[3] *= 1.001
        return found

    patch.setattr(CudaScorer, "score_rows", score_rows)


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_energies_on_the_gpu_are_those_of_the_reference(
    kind: str, trt: FakeTensorRt, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    trt.type_out = kind
    build_bundle_plan(tiny_bundle, "tensorrt")
    engine = open_tensorrt(tiny_bundle)
    with monkeypatch.context() as patch:
        wrong_energies(patch)
        with pytest.raises(ParityError, match=r"the scorer cuda gives other energies .*1 of 8"):
            check_device_scoring(tiny_bundle, engine, "cuda")
    check_device_scoring(tiny_bundle, engine, "cuda")
    wrong_energies(monkeypatch)
    check_device_scoring(tiny_bundle, engine, "cuda")  # that it passed is remembered
    engine.close()


def test_build_tests_scoring_and_keeps_a_plan_that_is_not_at_fault(
    trt: FakeTensorRt, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        wrong_energies(patch)
        assert "the scorer cuda gives other energies" in fails(5, "build", "line.anoco")
    assert len(cache.list_plans()) == 1
    args = ("infer", "line.anoco", "parts", "--engine", "tensorrt", "--scorer", "cuda")
    with monkeypatch.context() as patch:
        wrong_energies(patch)
        assert "the scorer cuda gives other energies" in fails(5, *args)
    built = ok("build", "line.anoco", "--json").json
    assert built["scoring_not_run"] == ""
    assert built["products"] and all(m["times"]["own_ms"] > 0 for m in built["products"])
    assert "on the GPU, with the energies of the reference" in ok("build", "line.anoco").out
    ok(*args)


# ---- what is missing for it is said


NO_CUBLAS = "cuBLAS cannot be loaded: libcublas.so.12: cannot open shared object file"


@pytest.fixture
def without_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cuda_scorer.CudaDeviceInfo(
        False, True, False, 12060, 1, 87, 0, 8 << 30, "Orin", "sm87", NO_CUBLAS
    )
    monkeypatch.setattr(cuda_scorer, "describe", lambda device=0: found)


@pytest.mark.usefixtures("without_cublas")
def test_auto_never_scores_on_the_processor_in_silence(
    cuda: FakeCuda, trt: FakeTensorRt, here: Path
) -> None:
    said = "warning: tensorrt runs on the GPU, and the processor scores with native"
    built = ok("build", "line.anoco", "--json")
    assert built.json["scoring_not_run"] == NO_CUBLAS and built.json["products"] == []
    assert "not on the GPU" in ok("build", "line.anoco").out
    ran = ok("infer", "line.anoco", "parts")
    assert ran.err.count(said) == 1 and "libcublas.so.12" in ran.err
    bench = ok("bench", "line.anoco", "--frames", 2, "--warmup", 1, "--json")
    assert "libcublas.so.12" in bench.json["settings"]["remarks"] and said in bench.err
    asked = ok("infer", "line.anoco", "parts", "--scorer", "native")
    assert "which takes longer" not in asked.err, "who asks for it knows"
    doctor = ok("doctor", "--no-camera", "--json").json
    (row,) = (x for x in doctor if (x["group"], x["name"]) == ("scorers", "cuda"))
    assert "libcublas.so.12" in row["detail"]


@pytest.mark.usefixtures("without_cublas")
def test_only_an_engine_on_a_gpu_is_worth_a_word() -> None:
    assert why_not_on_gpu("onnxruntime", "auto", "native") == ""
    assert why_not_on_gpu("tensorrt", "native", "native") == ""
    assert why_not_on_gpu("tensorrt", "auto", "cuda") == ""
    assert NO_CUBLAS in why_not_on_gpu("onnxruntime-cuda", "auto", "onnx")
