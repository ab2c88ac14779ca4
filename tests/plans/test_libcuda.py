"""Our ctypes calls run against the simulated driver: memory, graphs, contexts and every failure."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubles.fake_cuda import FakeCuda
from doubles.fake_pycuda import install_pycuda
from doubles.fake_tensorrt import install_tensorrt
from doubles.libcuda import SimulatedLibcuda
from engine_cases import input_batch, open_tensorrt

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings
from anoco_edge.engines.ort import OnnxRuntimeEngine
from anoco_edge.engines.tensorrt import why_not
from anoco_edge.errors import AnocoError, EngineError, EnvironmentMissingError, UsageError
from anoco_edge.plans.build import build_bundle_plan
from anoco_edge.plans.device import BINDINGS, current_device, open_memory

pytestmark = pytest.mark.usefixtures("empty_cache")


def run_python(code: str, settings: dict[str, str]) -> str:
    """Run code in a process of its own, because the simulated driver reads its settings once."""
    environment = {**os.environ, **settings}
    environment.pop("ANOCO_EDGE_CUDA_BINDING", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_gpu_is_described(libcuda: SimulatedLibcuda) -> None:
    found = current_device()
    assert (found.name, found.capability) == ("Simulated device", "sm87")
    assert found.driver.startswith("cuda 12060")
    assert found.label == "Simulated device (8 SMs, 4 GB)"


def test_bytes_go_there_and_back_and_everything_is_given_back(libcuda: SimulatedLibcuda) -> None:
    memory = open_memory()
    buffer, host, back = (memory.allocate(100), memory.allocate_host(100), memory.allocate_host(60))
    host[:] = np.arange(100)
    memory.copy_in(buffer, host)
    memory.copy_out(back, buffer)
    memory.wait()
    assert back.tolist() == list(range(60))
    assert libcuda.memory.read(buffer, 100) == bytes(range(100)), "it is in the primary context"
    with pytest.raises(AnocoError, match="101 bytes does not fit its buffer of 100 bytes"):
        memory.copy_in(buffer, np.zeros(101, np.uint8))
    assert libcuda.held()[:2] == (100, 160)
    memory.close()
    memory.close()  # closing twice does no harm
    assert libcuda.held() == (0, 0, 0)


def test_queued_work_is_captured_once_and_launched_often(libcuda: SimulatedLibcuda) -> None:
    memory, runs = open_memory(), []
    graph = memory.capture(lambda: libcuda.enqueue(memory.stream, lambda: runs.append(1)))
    memory.wait()
    assert runs == [], "a capture does nothing"
    for _ in range(3):
        graph.launch()
    memory.wait()
    assert runs == [1, 1, 1]
    graph.close()
    graph.close()
    memory.capture(lambda: None)  # it is freed with the memory
    memory.close()
    assert libcuda.held() == (0, 0, 0)


@pytest.mark.parametrize(
    "call", ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"]
)
def test_a_capture_that_fails_leaves_a_stream_that_works(
    call: str, libcuda: SimulatedLibcuda
) -> None:
    memory, runs = open_memory(), []
    libcuda.memory.fail(call, 1, 901)
    with pytest.raises(EngineError, match=f"{call} failed: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
        memory.capture(lambda: None)
    with pytest.raises(ZeroDivisionError):
        memory.capture(lambda: [][1 // 0])
    graph = memory.capture(lambda: libcuda.enqueue(memory.stream, lambda: runs.append(1)))
    graph.launch()
    memory.wait()
    memory.close()
    assert runs == [1] and libcuda.held() == (0, 0, 0)


@pytest.mark.parametrize(
    ("call", "code", "error", "words"),
    [
        ("cuInit", 100, EnvironmentMissingError, r"there is no NVIDIA GPU \(cuInit: CUDA_ERROR_NO"),
        (
            "cuInit",
            999,
            EnvironmentMissingError,
            "driver does not start .*give a container the GPU",
        ),
        ("cuDeviceGetCount", 3, EngineError, "cuDeviceGetCount failed: CUDA_ERROR_NOT_INITIALIZED"),
        ("cuDevicePrimaryCtxRetain", 2, EnvironmentMissingError, "the GPU has not enough memory"),
        ("cuCtxPushCurrent_v2", 201, EngineError, "cuCtxPushCurrent_v2 failed: CUDA_ERROR_INVALID"),
        ("cuStreamCreate", 1, EngineError, "cuStreamCreate failed: CUDA_ERROR_INVALID_VALUE"),
        ("cuMemAlloc_v2", 2, EnvironmentMissingError, r"not enough memory \(cuMemAlloc_v2: CUDA_"),
        ("cuMemHostAlloc", 2, EnvironmentMissingError, r"not enough memory \(cuMemHostAlloc: "),
        ("cuMemcpyHtoDAsync_v2", 1, EngineError, "cuMemcpyHtoDAsync_v2 failed: CUDA_ERROR_INVALID"),
        ("cuMemcpyDtoHAsync_v2", 4321, EngineError, "cuMemcpyDtoHAsync_v2 failed: error 4321"),
        ("cuStreamSynchronize", 1, EngineError, "the CUDA call cuStreamSynchronize failed"),
    ],
)
def test_every_call_that_fails_is_named_and_leaks_nothing(
    call: str, code: int, error: type[AnocoError], words: str, libcuda: SimulatedLibcuda
) -> None:
    def use() -> None:
        memory = open_memory()
        try:
            buffer, host = memory.allocate(8), memory.allocate_host(8)
            memory.copy_in(buffer, host)
            memory.copy_out(host, buffer)
            memory.wait()
        finally:
            memory.close()

    use()
    libcuda.memory.fail(call, 1, code)
    with pytest.raises(AnocoError, match=words) as caught:
        use()
    assert type(caught.value) is error and libcuda.held() == (0, 0, 0)


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANOCO_CUDA_DRIVER", str(tmp_path / "libcuda.so.1"))
    with pytest.raises(
        EnvironmentMissingError, match=r"no NVIDIA driver, .*libcuda\.so\.1: cannot"
    ):
        current_device()
    monkeypatch.setenv("ANOCO_CUDA_DRIVER", "libm.so.6")
    with pytest.raises(
        EnvironmentMissingError, match=r"too old: libm\.so\.6 has no cuInit; .*11.4"
    ):
        current_device()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("SIMCUDA_DRIVER_VERSION=11030", "no NVIDIA driver, or it is too old (cuDriverGetVersion:"),
        ("SIMCUDA_DEVICES=0", "there is no NVIDIA GPU (cuInit: CUDA_ERROR_NO_DEVICE)"),
    ],
)
def test_drivers_that_are_of_no_use(setting: str, words: str, simulated_driver: Path) -> None:
    name, _, value = setting.partition("=")
    said = run_python(
        "from anoco_edge.plans.device import current_device\n"
        "try: current_device()\n"
        "except Exception as error: print(error)",
        {"ANOCO_CUDA_DRIVER": str(simulated_driver), name: value},
    )
    assert words in said


# ---- which binding, and in which context


def test_the_binding_is_that_of_the_variable(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert current_device().label == "Orin (16 SMs, 8 GB)"
    monkeypatch.setenv("ANOCO_EDGE_CUDA_BINDING", "libcuda")
    assert current_device().name == "Simulated device"
    monkeypatch.delenv("ANOCO_EDGE_CUDA_BINDING")
    assert current_device().name == "Simulated device", "it is the default"
    monkeypatch.setenv("ANOCO_EDGE_CUDA_BINDING", "cupy")
    with pytest.raises(UsageError, match="is 'cupy'; use libcuda, cuda-python, pycuda"):
        current_device()
    for module, name in (("cuda.bindings.runtime", "cuda-python"), ("pycuda.driver", "pycuda")):
        monkeypatch.setenv("ANOCO_EDGE_CUDA_BINDING", name)
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(EnvironmentMissingError, match=f"asks for {name}, which is not inst"):
            current_device()


@pytest.mark.parametrize("binding", BINDINGS)
def test_all_of_them_work_in_the_primary_context(
    binding: str, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    if binding == "pycuda":
        install_pycuda(monkeypatch, cuda)
    monkeypatch.setenv("ANOCO_EDGE_CUDA_BINDING", binding)
    cuda.memory.outside()
    cuda.strays.clear()
    memory = open_memory()
    buffer, host = memory.allocate(4), memory.allocate_host(4)
    host[:] = 7
    memory.copy_in(buffer, host)
    memory.wait()
    if binding == "cuda-python":
        memory.capture(lambda: None).launch()
    assert cuda.strays == [] and not (binding != "pycuda" and cuda.memory.inside())
    assert cuda.memory.read(buffer, 4) == b"\7" * 4, "anybody in the primary context can read it"
    memory.close()


FOREIGN = """
import ctypes, os
from anoco_edge.plans.device import open_memory
driver = ctypes.CDLL(os.environ["ANOCO_CUDA_DRIVER"])
def current():
    found = ctypes.c_void_p()
    assert driver.cuCtxGetCurrent(ctypes.byref(found)) == 0
    return found.value
def device_of(pointer):
    found = ctypes.c_int(-1)
    assert driver.cuPointerGetAttribute(ctypes.byref(found), 9, ctypes.c_uint64(pointer)) == 0
    return found.value
driver.cuInit(0)
own = ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(own), 1) == 0
assert driver.cuCtxPushCurrent_v2(own) == 0
memory = open_memory()
buffer, host = memory.allocate(16), memory.allocate_host(16)
memory.copy_in(buffer, host); memory.capture(lambda: None).launch(); memory.wait()
assert current() == own.value, "the program's own context is current again"
with memory.current():
    assert current() not in (None, own.value) and device_of(buffer) == 0
memory.close()
assert current() == own.value
print("kept")
"""


def test_a_context_of_the_program_stays_current_for_it(simulated_driver: Path) -> None:
    """The second device stands for a context that is not the primary one of the first."""
    settings = {"ANOCO_CUDA_DRIVER": str(simulated_driver), "SIMCUDA_DEVICES": "2"}
    assert run_python(FOREIGN, settings).strip() == "kept"


SLEEPING = """
import ctypes, os
from anoco_edge.plans.device import open_memory, use_blocking_sync
driver = ctypes.CDLL(os.environ["ANOCO_CUDA_DRIVER"])
def scheduling():
    flags, active = ctypes.c_uint(), ctypes.c_int()
    assert driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)) == 0
    return flags.value
memory = open_memory()
try: use_blocking_sync()
except Exception as error: print(error)
memory.close()
assert scheduling() == 0
driver.cuDevicePrimaryCtxSetFlags_v2(0, 8 | 1)
use_blocking_sync()
assert scheduling() == 8 | 4, "flags that are not about waiting stay"
memory = open_memory()
use_blocking_sync()
memory.close()
"""


def test_threads_that_wait_for_the_gpu_can_sleep(simulated_driver: Path) -> None:
    """Drivers before CUDA 11 refuse it once the GPU is in use, as the simulated one does."""
    said = run_python(SLEEPING, {"ANOCO_CUDA_DRIVER": str(simulated_driver)})
    assert "PRIMARY_CONTEXT_ACTIVE" in said or "error 708" in said, said
    assert "open what asks for `blocking_sync` before anything else uses the GPU" in said


# ---- the engine on top of it


def test_the_engine_needs_no_package(
    libcuda: SimulatedLibcuda, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("cuda.bindings.runtime", "pycuda.driver"):
        monkeypatch.setitem(sys.modules, module, None)
    trt = install_tensorrt(monkeypatch, libcuda)
    assert why_not("tensorrt") == ""
    build_bundle_plan(tiny_bundle, "tensorrt", batch=2)
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(4)
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    before = libcuda.numbers().graph_launches
    for first, count in ((0, 1), (1, 1), (0, 2), (2, 2), (3, 1)):
        chosen = slice(first, first + count)
        np.testing.assert_array_equal(engine.features(pixels[chosen]), wanted[chosen])
    assert (trt.captured, trt.enqueued) == ([1, 2], 2)
    assert libcuda.numbers().graph_launches - before == 3
    with engine.on_device(pixels[3:]) as features:
        there = libcuda.memory.read(features.pointer, features.nbytes)
    assert there == wanted[3].tobytes() and engine.remarks == ()
    libcuda.memory.outside()
    engine.close()
    engine.close()
    assert libcuda.held() == (0, 0, 0)


def test_a_plan_that_does_not_load_leaves_nothing_on_the_gpu(
    libcuda: SimulatedLibcuda, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    trt = install_tensorrt(monkeypatch, libcuda)
    build_bundle_plan(tiny_bundle, "tensorrt")
    trt.refusal = "Magic tag differs"
    with pytest.raises(AnocoError, match="Magic tag differs"):
        open_tensorrt(tiny_bundle)
    assert libcuda.held() == (0, 0, 0)


def test_an_array_that_is_not_contiguous_is_refused(libcuda: SimulatedLibcuda) -> None:
    memory = open_memory()
    buffer = memory.allocate(16)
    every_other: Any = memory.allocate_host(16)[::2]
    with pytest.raises(AnocoError, match="does not fit its buffer"):
        memory.copy_in(buffer, every_other)
    memory.close()


def test_engines_that_come_and_go_spoil_no_capture_of_another(
    libcuda: SimulatedLibcuda, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cameras: one changes its engine all the time, the other captures all the time."""
    install_tensorrt(monkeypatch, libcuda)
    build_bundle_plan(tiny_bundle, "tensorrt", batch=6)
    engine, pixels = open_tensorrt(tiny_bundle), input_batch(6)
    wanted = OnnxRuntimeEngine(tiny_bundle, EngineSettings()).features(pixels)
    stop, changes = threading.Event(), []
    real = libcuda.captures

    def slowly(stream: int) -> bool:
        if found := real(stream):
            time.sleep(0.002)  # long enough for the other thread to do something
        return found

    monkeypatch.setattr(libcuda, "captures", slowly)

    def change() -> None:
        while not stop.is_set():
            other = open_tensorrt(tiny_bundle)
            other.features(pixels[:1])
            other.close()
            changes.append(1)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for number in itertools.count():
            if len(changes) >= 12:
                break
            assert thread.is_alive(), "the other camera failed"
            count = 1 + number % 6  # more sizes than graphs are kept: all are captured again
            np.testing.assert_array_equal(engine.features(pixels[:count]), wanted[:count])
            assert engine._launcher._failures == {}, "a capture was spoilt"
    finally:
        stop.set()
        thread.join(60)
    assert engine.remarks == ()
    engine.close()
