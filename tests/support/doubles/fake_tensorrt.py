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
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from doubles.fake_cuda import FakeCuda
from doubles.libcuda import SimulatedLibcuda


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


class LayerType(IntEnum):
    MATRIX_MULTIPLY = 1
    CAST = 2
    SOFTMAX = 3
    SHUFFLE = 4
    IDENTITY = 5
    ELEMENTWISE = 6


class DataType(IntEnum):
    FLOAT = 0
    HALF = 1
    BF16 = 7


class Layer:
    """A layer of a network; the type of its output follows from its inputs, except for a Cast."""

    num_outputs = 1

    def __init__(self, kind: LayerType, name: str, *inputs: Any, to: Any = None) -> None:
        self.type, self.name, self.to = kind, name, to
        self.inputs = list(inputs)
        self.num_inputs = len(inputs)

    def get_input(self, number: int) -> Any:
        return self.inputs[number]

    def set_input(self, number: int, tensor: Any) -> None:
        self.inputs[number] = tensor

    def get_output(self, number: int) -> Any:
        assert number == 0
        dtype = self.inputs[0].dtype if self.to is None else self.to
        return SimpleNamespace(name=self.name, dtype=dtype)


class Network:
    """A network with the attention block of a backbone, if that has one."""

    num_inputs = 1

    def __init__(self, trt: FakeTensorRt) -> None:
        self._trt, self.model = trt, b""
        self.layers: list[Layer] = []
        if trt.half_attention:
            q, k, v = (SimpleNamespace(name=name, dtype=DataType.HALF) for name in "qkv")
            product = Layer(LayerType.MATRIX_MULTIPLY, "logits", q, k)
            wide = Layer(LayerType.CAST, "wide", product.get_output(0), to=DataType.FLOAT)
            softmax = Layer(LayerType.SOFTMAX, "softmax", wide.get_output(0))
            narrow = Layer(LayerType.CAST, "narrow", softmax.get_output(0), to=DataType.HALF)
            last = Layer(LayerType.MATRIX_MULTIPLY, "mixed", narrow.get_output(0), v)
            self.layers = [product, wide, softmax, narrow, last]

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def get_layer(self, number: int) -> Layer:
        return self.layers[number]

    def get_input(self, number: int) -> Any:
        return self._trt.input

    def add_cast(self, tensor: Any, dtype: DataType) -> Layer:
        self.layers.append(Layer(LayerType.CAST, f"cast {tensor.name}", tensor, to=dtype))
        return self.layers[-1]

    @property
    def fused(self) -> bool:
        return not self.layers or self.layers[0].get_output(0).dtype == DataType.HALF


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
        return Network(self._trt)

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
        self._trt.builds.append("fused" if network.fused else "fp32 logits")
        head = {**config.profiles[0], "fused": network.fused}
        return json.dumps(head).encode() + b"\0" + bytes(network.model)


class OnnxParser:
    num_errors = 0

    def __init__(self, network: Any, log: Any) -> None:
        self._network = network

    def parse(self, model: bytes) -> bool:
        self._network.model = model
        return True

    def parse_from_file(self, path: str) -> bool:
        return self.parse(Path(path).read_bytes())


class Engine:
    num_io_tensors = 2

    def __init__(self, trt: FakeTensorRt, log: Any, plan: bytes) -> None:
        import onnxruntime

        self.log = log

        profile, _, graph = bytes(plan).partition(b"\0")
        self.trt, self.profile = trt, json.loads(profile)
        self.session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])

    device_memory_size_v2 = 512

    def create_engine_inspector(self) -> Any:
        """List a kernel that only copies and a fused attention block, whatever the graph is."""
        names = {"__myl_CastTran_myl0_0": "kgen", "_gemm_mha_v2_myl0_1": "gemm"}
        layers = [{"Name": name, "LayerType": kind} for name, kind in names.items()]
        return SimpleNamespace(get_engine_information=lambda form: json.dumps({"Layers": layers}))

    def get_tensor_name(self, number: int) -> str:
        return ("pixels", "features")[number]

    def get_tensor_dtype(self, name: str) -> str:
        taken = {"tensor(float)": "float32"}.get(self.session.get_inputs()[0].type, "uint8")
        return {"pixels": taken, "features": self.trt.type_out}[name]

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
        if not trt.cuda.captures(stream):
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
            context._run(shape, trt.wrong_captured)

        trt.captured.append(shape[0])
        trt.cuda.enqueue(stream, launched)
        return True

    def _run(self, shape: tuple[int, ...], wrong_by: Any = 0) -> None:
        trt = self._engine.trt
        trt.batches.append(shape[0])
        taken = np.dtype(self._engine.get_tensor_dtype("pixels"))
        size = int(np.prod(shape)) * taken.itemsize
        assert size <= trt.cuda.buffers[self._addresses["pixels"]]
        source = ctypes.string_at(self._addresses["pixels"], size)
        pixels = np.frombuffer(source, taken).reshape(shape)
        (features,) = self._engine.session.run(["features"], {"pixels": pixels})
        wrong = trt.wrong_by + (trt.wrong_fused if self._engine.profile.get("fused", True) else 0)
        features = np.ascontiguousarray(features + wrong + wrong_by, trt.type_out)
        assert features.nbytes <= trt.cuda.buffers[self._addresses["features"]]
        ctypes.memmove(self._addresses["features"], features.ctypes.data, features.nbytes)


class FakeTensorRt(ModuleType):
    """The module; `refusal` is an error of the builder, and `wrong_by` changes the features.

    `half_attention` gives the network attention, and `wrong_fused` changes the features of a plan
    whose attention is fused; `builds` lists what was built. `wrong_captured` changes those of a
    graph.
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
    LayerType = LayerType
    DataType = DataType
    ProfilingVerbosity = SimpleNamespace(DETAILED="detailed")
    LayerInformationFormat = SimpleNamespace(JSON="json")

    def __init__(self, name: str, version: str, cuda: FakeCuda | SimulatedLibcuda) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.__version__ = version
        self.cuda = cuda
        self.input = SimpleNamespace(name="pixels", shape=(-1, 64, 64, 3))
        self.config: Any = None
        self.refusal = ""
        self.wrong_by: Any = np.float32(0)
        self.wrong_fused: Any = np.float32(0)
        self.wrong_captured: Any = np.float32(0)
        self.half_attention = False
        self.builds: list[str] = []
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
    cuda: FakeCuda | SimulatedLibcuda,
    name: str = "tensorrt",
    version: str = "10.3.0",
) -> FakeTensorRt:
    """Make the module importable."""
    fake = FakeTensorRt(name, version, cuda)
    monkeypatch.setitem(sys.modules, name, fake)
    return fake
