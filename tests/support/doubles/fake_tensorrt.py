"""A double of the part of `tensorrt` (or `tensorrt_rtx`) that we call, run by ONNX Runtime.

A plan of this module is the profile as JSON, a zero byte, and the graph. The double asserts what
the real one requires: strong typing, no TF32, addresses and shapes before a run.
"""

from __future__ import annotations

import ctypes
import json
import sys
import weakref
from enum import IntEnum
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from doubles.fake_cuda import FakeCuda


class Severity(IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING = Severity


class IProgressMonitor:
    pass


class Typed(IntEnum):
    STRONGLY_TYPED = 1


class Config:
    def __init__(self, trt: FakeTensorRt) -> None:
        self._trt = trt
        self.flags = {"TF32"}
        self.pools: dict[str, int] = {}
        self.profiles: list[dict[str, Any]] = []
        self.timing: Any = None
        self.progress_monitor: Any = None

    def clear_flag(self, flag: str) -> None:
        self.flags.discard(flag)

    def set_memory_pool_limit(self, pool: str, size: int) -> None:
        self.pools[pool] = size

    def add_optimization_profile(self, profile: Any) -> int:
        self.profiles.append(profile.shapes)
        return 0

    def create_timing_cache(self, content: bytes) -> Any:
        if content and not content.startswith(self._trt.__version__.encode()):
            return None
        grown = content or self._trt.__version__.encode()
        return SimpleNamespace(content=content, serialize=lambda: grown + b"+")

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        assert ignore_mismatch is False
        self.timing = cache
        return True


class Builder:
    def __init__(self, trt: FakeTensorRt, log: Any) -> None:
        self._trt, self._log = trt, log

    def create_network(self, flags: int) -> Any:
        assert flags == 1 << Typed.STRONGLY_TYPED
        return SimpleNamespace(model=b"", num_inputs=1, get_input=lambda k: self._trt.input)

    def create_builder_config(self) -> Config:
        self._trt.config = Config(self._trt)
        return self._trt.config

    def create_optimization_profile(self) -> Any:
        shapes: dict[str, Any] = {}
        return SimpleNamespace(
            shapes=shapes, set_shape=lambda name, *three: shapes.update({name: three})
        )

    def build_serialized_network(self, network: Any, config: Config) -> bytes | None:
        assert "TF32" not in config.flags and len(config.profiles) == 1
        config.progress_monitor.phase_start("Building", None, 3)
        for step in range(3):
            self._trt.steps += 1
            if not config.progress_monitor.step_complete("Building", step):
                return None
        config.progress_monitor.phase_finish("Building")
        if self._trt.refusal:
            self._log.log(Severity.WARNING, "this is only a warning")
            self._log.log(Severity.ERROR, self._trt.refusal)
            self._log.log(Severity.ERROR, "and what follows from it")
            return None
        return json.dumps(config.profiles[0]).encode() + b"\0" + bytes(network.model)


class OnnxParser:
    num_errors = 0

    def __init__(self, network: Any, log: Any) -> None:
        self._network = network

    def parse(self, model: bytes) -> bool:
        self._network.model = model
        return True


class Engine:
    num_io_tensors = 2

    def __init__(self, trt: FakeTensorRt, log: Any, plan: bytes) -> None:
        import onnxruntime

        self.log = log

        profile, _, graph = plan.partition(b"\0")
        self.trt, self.profile = trt, json.loads(profile)
        self.session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])

    def get_tensor_name(self, number: int) -> str:
        return ("pixels", "features")[number]

    def get_tensor_dtype(self, name: str) -> str:
        return {"pixels": "uint8", "features": self.trt.type_out}[name]

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[tuple[int, ...]]:
        assert profile == 0
        return [tuple(shape) for shape in self.profile[name]]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        assert name == "features"
        return (-1, *self.session.get_outputs()[0].shape[1:])

    def create_execution_context(self) -> Context | None:
        if self.trt.contexts == self.trt.most_contexts:
            self.log.log(Severity.ERROR, "Error Code 2: OutOfMemory")
            return None
        self.trt.contexts += 1
        made = Context(self)
        self.trt.living.add(made)
        return made


class Context:
    """An execution context; `changes` counts changes that would invalidate an earlier graph."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._addresses: dict[str, int] = {}
        self._shape: tuple[int, ...] = ()
        self._changes = 0
        self._ran_at = -1  # the value of `changes` at the last plain run

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert address in self._engine.trt.cuda.buffers
        self._addresses[name] = address
        self._changes += 1
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        least, _, most = self._engine.get_tensor_profile_shape(name, 0)
        fits = all(a <= b <= c for a, b, c in zip(least, shape, most, strict=True))
        self._shape = shape if fits else ()
        self._changes += 1
        return fits

    def execute_async_v3(self, stream: int) -> bool:
        trt = self._engine.trt
        assert stream in trt.cuda.streams and set(self._addresses) == {"pixels", "features"}
        if trt.broken_run:
            return False
        shape = self._shape
        if not trt.cuda.memory.captures:
            self._ran_at = self._changes
            trt.enqueued += 1
            trt.cuda.enqueue(stream, lambda: self._run(shape))
            return True
        assert self._ran_at == self._changes, "captured without a plain run before"
        if trt.refuses_capture:
            self._engine.log.log(Severity.ERROR, trt.refuses_capture)
            trt.cuda.spoil_capture()
            return False
        there, changes = weakref.ref(self), self._changes

        def launched() -> None:
            context = there()
            assert context is not None, "the graph outlives its context"
            assert context._changes == changes, "the context was changed under its graph"
            context._run(shape)

        trt.captured.append(shape[0])
        trt.cuda.enqueue(stream, launched)
        return True

    def _run(self, shape: tuple[int, ...]) -> None:
        trt = self._engine.trt
        trt.batches.append(shape[0])
        size = int(np.prod(shape))
        assert size <= trt.cuda.buffers[self._addresses["pixels"]]
        source = ctypes.string_at(self._addresses["pixels"], size)
        pixels = np.frombuffer(source, np.uint8).reshape(shape)
        (features,) = self._engine.session.run(["features"], {"pixels": pixels})
        features = np.ascontiguousarray(features + trt.wrong_by, trt.type_out)
        assert features.nbytes <= trt.cuda.buffers[self._addresses["features"]]
        ctypes.memmove(self._addresses["features"], features.ctypes.data, features.nbytes)


class FakeTensorRt(ModuleType):
    """The module; `refusal` is an error of the builder, and `wrong_by` changes the features.

    `batches` lists those that ran, `captured` those that graphs were made of, and `enqueued` counts
    runs without a graph.
    """

    ILogger = ILogger
    IProgressMonitor = IProgressMonitor
    OnnxParser = OnnxParser
    NetworkDefinitionCreationFlag = Typed
    BuilderFlag = SimpleNamespace(TF32="TF32")
    MemoryPoolType = SimpleNamespace(WORKSPACE="workspace")
    ComputeCapability = SimpleNamespace(SM86=86, SM89=89)

    def __init__(self, name: str, version: str, cuda: FakeCuda) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.__version__ = version
        self.cuda = cuda
        self.input = SimpleNamespace(name="pixels", shape=(-1, 64, 64, 3))
        self.config: Any = None
        self.refusal = ""
        self.wrong_by: Any = np.float32(0)
        self.type_out = "float32"
        self.broken_run = False
        self.refuses_capture = ""
        self.batches: list[int] = []
        self.captured: list[int] = []
        self.enqueued = 0
        self.contexts, self.most_contexts = 0, 100
        self.living: weakref.WeakSet[Context] = weakref.WeakSet()
        self.deserialised = 0
        self.steps = 0

    def Builder(self, log: Any) -> Builder:
        return Builder(self, log)

    def Runtime(self, log: Any) -> Any:
        def deserialise(plan: bytes) -> Engine | None:
            self.deserialised += 1
            if self.refusal:
                log.log(Severity.ERROR, self.refusal)
                return None
            return Engine(self, log, plan)

        return SimpleNamespace(deserialize_cuda_engine=deserialise)

    @staticmethod
    def nptype(dtype: str) -> Any:
        return np.dtype(dtype).type


def install_tensorrt(
    monkeypatch: pytest.MonkeyPatch,
    cuda: FakeCuda,
    name: str = "tensorrt",
    version: str = "10.3.0",
) -> FakeTensorRt:
    """Make the module importable."""
    fake = FakeTensorRt(name, version, cuda)
    monkeypatch.setitem(sys.modules, name, fake)
    return fake
