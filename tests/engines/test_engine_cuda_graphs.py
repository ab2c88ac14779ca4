"""The TensorRT engine runs as CUDA graphs, or without them where they cannot be captured."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from doubles.fake_cuda import FakeCuda, cudaError_t
from doubles.fake_tensorrt import FakeTensorRt
from engine_cases import input_batch, open_tensorrt

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings
from anoco_edge.engines.cuda_graphs import MAX_FAILURES, MAX_GRAPHS
from anoco_edge.engines.ort import OnnxRuntimeEngine
from anoco_edge.errors import AnocoError
from anoco_edge.plans.build import build_bundle_plan
from anoco_edge.scoring.capture_rule import capture_if_free, device_wide

pytestmark = pytest.mark.usefixtures("empty_cache")


def test_each_batch_size_is_captured_once_after_a_plain_run(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt", batch=2)
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(4)
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    for first, count in ((0, 1), (1, 1), (0, 2), (2, 2), (3, 1), (1, 3)):
        chosen = slice(first, first + count)
        np.testing.assert_array_equal(engine.features(pixels[chosen]), wanted[chosen])
    assert (trt.captured, trt.enqueued) == ([1, 2], 2)
    assert trt.batches == [1, 1, 2, 2, 1, 2, 1] and cuda.calls.count("cudaGraphLaunch") == 5
    with engine.on_device(pixels[3:]) as features:
        there = cuda.memory.read(features.pointer, features.nbytes)
    assert there == wanted[3].tobytes() and cuda.calls.count("cudaGraphLaunch") == 6
    assert engine.remarks == ()
    assert len(cuda.execs) == 2 and not cuda.graphs
    engine.close()
    assert not cuda.execs


def test_graphs_of_an_engine_that_is_dropped_go_too(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    engine = open_tensorrt(tiny_bundle)
    engine.features(input_batch(1))
    assert len(cuda.execs) == 1
    del engine
    gc.collect()
    assert not cuda.execs and not cuda.streams


def test_few_sizes_are_kept(cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt", batch=6)
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(6)
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    sizes = [*range(1, MAX_GRAPHS + 1), 1, 5, 6, 1]
    for count in sizes:
        np.testing.assert_array_equal(engine.features(pixels[:count]), wanted[:count])
    # Size 1 was used again before 5 and 6 replaced 2 and 3.
    assert trt.captured == [1, 2, 3, 4, 5, 6] and trt.contexts == MAX_GRAPHS == len(cuda.execs)


def test_where_tensorrt_refuses_a_capture_it_is_enqueued_and_says_so(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt", batch=2)
    trt.refuses_capture = "operation not permitted when stream is capturing"
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(3)
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    for count in (1, 2, 1):
        np.testing.assert_array_equal(engine.features(pixels[:count]), wanted[:count])
    assert engine.remarks == (), "it is tried again"
    for count in (1, 3, 2, 1):
        np.testing.assert_array_equal(engine.features(pixels[:count]), wanted[:count])
    (said,) = engine.remarks
    assert said == (
        "tensorrt: not captured into a CUDA graph, so it is enqueued for every batch (TensorRT "
        "failed at execute_async_v3: operation not permitted when stream is capturing)"
    )
    assert cuda.calls.count("cudaStreamBeginCapture") <= 2 * MAX_FAILURES, "it is given up"
    assert (trt.captured, trt.enqueued, trt.contexts) == ([], 8, 1)
    assert not cuda.execs and "cudaGraphLaunch" not in cuda.calls
    trt.broken_run = True
    with pytest.raises(AnocoError, match="execute_async_v3: it gave no reason"):
        engine.features(pixels[:1])  # the failed capture is not the reason given for this error


@pytest.mark.parametrize(
    "call", ["cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"]
)
def test_where_cuda_refuses_a_graph(
    call: str, cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt", batch=2)
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(2)
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    engine.features(pixels[:1])
    assert not engine.remarks and len(cuda.execs) == 1
    cuda.refuse(call)  # it fails from the second size on
    for count in (2, 1, 2):
        np.testing.assert_array_equal(engine.features(pixels[:count]), wanted[:count])
    assert not engine.remarks and len(cuda.execs) == 1, "it is tried again, the other size runs"
    np.testing.assert_array_equal(engine.features(pixels), wanted)
    (said,) = engine.remarks
    assert f"(the CUDA call {call} failed: cudaErrorStreamCaptureInvalidated)" in said
    assert trt.batches == [1, 2, 1, 2, 2] and not cuda.execs and not cuda.graphs
    assert (trt.contexts, len(trt.living)) == (2, 1), "one serves all sizes"


def test_a_capture_that_failed_by_chance_is_made_later(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(1)
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    for _ in range(3):  # chance strikes again and again, but never often in a row
        for _ in range(MAX_FAILURES - 1):
            cuda.refuse("cudaStreamEndCapture")
            np.testing.assert_array_equal(engine.features(pixels), wanted)
            assert not cuda.execs
        cuda.refused.clear()
        for _ in range(2):
            np.testing.assert_array_equal(engine.features(pixels), wanted)
        assert len(cuda.execs) == 1 and engine.remarks == ()
        engine._launcher._retire(1)


def test_a_graph_that_is_not_launched_costs_no_frame(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(1)
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    cuda.fail["cudaGraphLaunch"] = cudaError_t.cudaErrorStreamCaptureInvalidated
    for _ in range(MAX_FAILURES + 2):
        np.testing.assert_array_equal(engine.features(pixels), wanted)
    (said,) = engine.remarks
    assert "(the CUDA call cudaGraphLaunch failed: cudaErrorStreamCaptureInvalidated)" in said
    assert not cuda.execs and trt.enqueued == MAX_FAILURES + 2


def test_a_gpu_that_is_lost_is_no_matter_of_graphs(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(1)
    engine.features(pixels)
    for call in ("cudaGraphLaunch", "cudaStreamSynchronize"):
        cuda.fail[call] = cudaError_t.cudaErrorIllegalAddress
    with pytest.raises(AnocoError, match="the CUDA call cudaGraphLaunch failed: cudaErrorIllegal"):
        engine.features(pixels)
    cuda.fail.clear()


def test_nothing_is_captured_while_something_concerns_the_whole_gpu(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(1)
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    held, done = threading.Event(), threading.Event()

    def other_thread() -> None:
        with device_wide():
            held.set()
            done.wait(30)

    thread = threading.Thread(target=other_thread)
    thread.start()
    assert held.wait(30)
    for _ in range(MAX_FAILURES + 1):
        np.testing.assert_array_equal(engine.features(pixels), wanted)
    assert "cudaStreamBeginCapture" not in cuda.calls, "nor did a frame wait"
    done.set()
    thread.join()
    engine.features(pixels)
    assert len(cuda.execs) == 1 and engine.remarks == ()


def test_an_engine_is_closed_only_when_no_graph_is_captured(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt")
    engine = open_tensorrt(tiny_bundle)
    with capture_if_free() as free:
        assert free and not gc.isenabled()
        closing = threading.Thread(target=engine.close)
        closing.start()
        closing.join(0.2)
        assert closing.is_alive() and cuda.buffers
    closing.join(30)
    assert not cuda.buffers and gc.isenabled()


def test_where_there_is_no_memory_for_another_context(
    cuda: FakeCuda, trt: FakeTensorRt, tiny_bundle: Bundle
) -> None:
    build_bundle_plan(tiny_bundle, "tensorrt", batch=2)
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(2)
    trt.most_contexts = trt.contexts
    engine.features(pixels[:1])
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    np.testing.assert_array_equal(engine.features(pixels), wanted)
    np.testing.assert_array_equal(engine.features(pixels[1:]), wanted[1:])
    (said,) = engine.remarks
    assert "enqueued for every batch (TensorRT ran out of memory" in said


def test_the_rule_holds_the_librarys_own_lock_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    library = SimpleNamespace(
        anoco_cuda_lock=lambda kind: calls.append(("lock", kind)),
        anoco_cuda_unlock=lambda kind: calls.append(("unlock", kind)),
    )
    monkeypatch.setattr("anoco_edge.scoring.capture_rule.load_library", lambda: library)
    with device_wide(), device_wide():
        assert calls == [("lock", 1)], "it may not be nested"
    with capture_if_free() as free, pytest.raises(ZeroDivisionError), device_wide():
        assert free and calls[1:] == [("unlock", 1), ("lock", 2)]
        raise ZeroDivisionError
    assert calls[-1] == ("unlock", 2) and len(calls) == 4
