"""TensorRT and TensorRT-RTX: the backbone as a plan on an NVIDIA GPU.

This engine has not run on a GPU yet, because no machine that built it had one. The tests run all of
it with doubles of `tensorrt` and of CUDA, which use the processor's memory. On a device
`anoco-edge build BUNDLE` runs the self-test, which compares the features with those of torch.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle, InputContract
from anoco_edge.engines.base import EngineSettings
from anoco_edge.engines.cuda_graphs import GraphLauncher
from anoco_edge.engines.device_path import DeviceTrace
from anoco_edge.errors import (
    AnocoError,
    BundleError,
    EngineError,
    EnvironmentMissingError,
    UsageError,
)
from anoco_edge.plans.cache import (
    Fingerprint,
    PlanRecord,
    find_nameless_plan,
    find_plan,
    read_plan,
    why_fp32_logits,
)
from anoco_edge.plans.device import DeviceMemory, current_device, open_memory
from anoco_edge.plans.tensorrt_builder import plan_error
from anoco_edge.plans.tensorrt_modules import (
    PLAN_ENGINES,
    PlanEngine,
    check_installed,
    collecting_log,
    load_module,
    title,
)
from anoco_edge.scoring.capture_rule import device_wide
from anoco_edge.scoring.device_array import DeviceArray

_INPUT, _OUTPUT = "pixels", "features"


def open_engine(name: str, bundle: Bundle, settings: EngineSettings) -> TensorRtEngine:
    """Load the plan of the bundle's backbone."""
    return TensorRtEngine(_known(name), bundle, settings)


def try_out(name: str) -> str:
    """Look for the module and the GPU; raises what is missing."""
    if reason := why_not(name):
        raise EnvironmentMissingError(reason)
    return "runs plans, made with: anoco-edge build BUNDLE"


def why_not(plan_engine: str, bundle: Bundle | None = None) -> str:
    """Say why this engine cannot run here (with this bundle); empty when it can.

    >>> why_not("tensorflow")
    "unknown engine 'tensorflow'; use tensorrt or tensorrt-rtx"
    """
    try:
        known = _known(plan_engine)
        here = _this_machine(known)
        if bundle is not None:
            _find_plan_file(known, bundle, here)
    except AnocoError as error:
        return str(error)
    return ""


class TensorRtEngine:
    """Runs a plan. Buffers are allocated once, for the largest batch."""

    def __init__(
        self,
        plan_engine: PlanEngine,
        bundle: Bundle,
        settings: EngineSettings,
        *,
        plan: PlanRecord | None = None,
    ) -> None:
        """Load the plan that fits this machine, or `plan`, which is one of the cache."""
        # Threads and arena are the processor's, so nothing of `settings` applies.
        plan_engine = _known(plan_engine)
        here = _this_machine(plan_engine)
        if plan is not None:
            plan_file = _cached_file(plan)
        else:
            plan_file = _find_plan_file(plan_engine, bundle, here)
        self.name: str = plan_engine
        self._slow = plan_file.remark
        self.max_batch = plan_file.max_batch
        # Building measures which kernels are fastest, so another build may round otherwise. Each
        # plan is therefore tested once.
        self.fingerprint = "|".join(
            (self.name, here.version, here.gpu, here.capability, here.driver, plan_file.sha256)
        )
        contract = bundle.manifest.input
        self._shape = (contract.height, contract.width, 3)
        self._arranged = contract.arranged
        self._lock = threading.Lock()  # a context runs one batch at a time
        self._memory: DeviceMemory = open_memory()
        self._release = weakref.finalize(self, _close_memory, self._memory)
        self._release.atexit = False  # the driver frees everything when the process ends
        try:
            with device_wide(), self._memory.current():
                self._load(_Plan(plan_engine, plan_file, contract))
        except AnocoError:
            self._release()
            raise

    def _load(self, plan: _Plan) -> None:
        self._plan = plan
        picture = int(np.prod(self._shape)) * plan.dtype_in.itemsize
        self._pixels = self._memory.allocate(self.max_batch * picture)
        self._features = self._memory.allocate(self.max_batch * plan.bytes_out)
        self._host_pixels = self._memory.allocate_host(self.max_batch * picture)
        self._host_features = self._memory.allocate_host(self.max_batch * plan.bytes_out)
        plan.bind(self._pixels, self._features)
        self._launcher = GraphLauncher(plan, self._memory)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Why it runs slower than it could; some of it is known after the first picture."""
        said = (self._slow, self._launcher.remark)
        return tuple(f"{self.name}: {text}" for text in said if text)

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Compute the features of preprocessed pictures; a large batch is run in pieces."""
        self._check(pixels)
        found = np.empty((len(pixels), *self._plan.shape_out), self._plan.dtype_out)
        with self._lock, self._memory.current():
            for start in range(0, len(pixels), self.max_batch):
                batch = slice(start, start + self.max_batch)
                self._run(pixels[batch], found[batch])
        return found.astype(np.float32, copy=False)

    @contextlib.contextmanager
    def on_device(self, pixels: NDArray[np.uint8]) -> Iterator[DeviceArray]:
        """Compute features of at most `max_batch` pictures, which stay on the GPU for a `with`."""
        self._check(pixels)
        with self._lock:
            with self._memory.current():
                self._queue(pixels)
                self._memory.wait()
            shape = (len(pixels), *self._plan.shape_out)
            yield DeviceArray(self._features, shape, self._plan.dtype_out, owner=self)

    def trace(self, pixels: NDArray[np.uint8]) -> DeviceTrace:
        """Run one picture plainly and as a graph, and read back what that left on the GPU."""
        self._check(pixels)
        with self._lock, self._memory.current():
            host, shape = self._upload(pixels)
            sent = host.copy()
            self._launcher.queue_plainly(shape)
            plain = self._read_features(len(pixels))
            host[...] = 0
            self._memory.copy_out(host, self._pixels)
            self._memory.wait()
            arrived = host.copy()
            self._queue(pixels)  # this captures
            self._memory.wait()
            if not self._launcher.is_captured(len(pixels)):
                return DeviceTrace(sent, arrived, plain, None)
            self._host_features[...] = 0
            self._memory.copy_in(self._features, self._host_features)
            self._launcher.queue(shape)  # and this launches
            return DeviceTrace(sent, arrived, plain, self._read_features(len(pixels)))

    def close(self) -> None:
        """Free the GPU's memory; the engine cannot be used after that."""
        if not self._release.alive:
            return
        with device_wide():
            with contextlib.suppress(AnocoError), self._memory.current():
                self._launcher.close()
                self._plan.close()
            self._release()

    def _run(self, pixels: NDArray[np.uint8], found: NDArray[Any]) -> None:
        self._queue(pixels)
        found[...] = self._read_features(len(found))

    def _queue(self, pixels: NDArray[np.uint8]) -> None:
        self._launcher.queue(self._upload(pixels)[1])

    def _upload(self, pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], tuple[int, ...]]:
        """Queue the copy of a batch; returns the bytes that are sent, and their shape for a run."""
        given = self._arranged(pixels)
        host = self._host_pixels[: given.nbytes]
        host.view(given.dtype).reshape(given.shape)[...] = given
        self._memory.copy_in(self._pixels, host)
        return host, given.shape

    def _read_features(self, count: int) -> NDArray[Any]:
        """Wait for the features of so many pictures, and copy them out of the engine's memory."""
        host = self._host_features[: count * self._plan.bytes_out]
        self._memory.copy_out(host, self._features)
        self._memory.wait()
        found: NDArray[Any] = host.view(self._plan.dtype_out)
        return found.reshape(count, *self._plan.shape_out).copy()

    def _check(self, pixels: NDArray[np.uint8]) -> None:
        if pixels.shape[1:] != self._shape or pixels.dtype != np.uint8:
            raise UsageError(
                f"pixels are {pixels.dtype} of shape {pixels.shape}, "
                f"the backbone takes uint8 of shape (batch, {', '.join(map(str, self._shape))})",
                hint="preprocess pictures to the input of the bundle first",
            )


def _close_memory(memory: DeviceMemory) -> None:
    with device_wide():
        memory.close()


@dataclass(frozen=True)
class _PlanFile:
    """A plan that fits this machine, in the cache or in the bundle; `read` checks its hash."""

    label: str
    sha256: str
    max_batch: int
    read: Callable[[], bytes]
    remark: str = ""


def _known(plan_engine: str) -> PlanEngine:
    for known in PLAN_ENGINES:
        if plan_engine == known:
            return known
    raise UsageError(f"unknown engine {plan_engine!r}", hint=f"use {' or '.join(PLAN_ENGINES)}")


def _this_machine(plan_engine: PlanEngine) -> Fingerprint:
    """Identify the module and the GPU of this machine; what is missing is an error."""
    check_installed(plan_engine)
    device = current_device()  # first, because the module takes long to load
    return Fingerprint.of(str(load_module(plan_engine).__version__), device)


def _find_plan_file(plan_engine: PlanEngine, bundle: Bundle, here: Fingerprint) -> _PlanFile:
    """Prefer a plan that was built here, which the self-test has tried, to the bundle's own."""
    found = find_plan(bundle.graph_identity(), plan_engine, here)
    if found is not None:
        return _cached_file(found)
    for plan in bundle.manifest.plans:
        fits = (plan.engine, plan.version, plan.target)
        if fits == (plan_engine, here.version, here.capability):
            record = bundle.file(plan.path)
            path = str(bundle.path / plan.path)
            return _PlanFile(path, record.sha256, plan.max_batch, partial(bundle.read, record))
    older = find_nameless_plan(bundle.graph_identity(), plan_engine, here)
    why = ": an older one does not say for which size of GPU it was built" if older else ""
    raise BundleError(
        f"there is no plan of {bundle.path} for {title(plan_engine)} {here.version} on "
        f"{here.gpu}, {here.capability}{why}",
        hint=f"run: anoco-edge build {bundle.path}, with `engine='{plan_engine}'`",
    )


def _cached_file(plan: PlanRecord) -> _PlanFile:
    why = why_fp32_logits(plan.graph, plan.plan_engine, plan.fingerprint)
    remark = f"runs with FP32 logits, which takes longer: {why}" if why else ""
    return _PlanFile(str(plan.path), plan.sha256, plan.max_batch, partial(read_plan, plan), remark)


class _Plan:
    """A deserialized plan, checked against what the manifest promises."""

    def __init__(
        self, plan_engine: PlanEngine, plan_file: _PlanFile, contract: InputContract
    ) -> None:
        self._who, self._label = title(plan_engine), plan_file.label
        self._trt = load_module(plan_engine)
        self._log = collecting_log(self._trt)
        self._runtime = self._trt.Runtime(self._log)
        self._engine = self._not_none(self._runtime.deserialize_cuda_engine(plan_file.read()))
        self.shape_out = (contract.rows * contract.cols, contract.dim)
        self.dtype_in = np.dtype(contract.pixels)
        self._check(plan_file.max_batch, contract)
        self.dtype_out = np.dtype(self._trt.nptype(self._engine.get_tensor_dtype(_OUTPUT)))
        self.bytes_out = int(np.prod(self.shape_out)) * self.dtype_out.itemsize

    def bind(self, pixels: int, features: int) -> None:
        """Set where the input and output of all contexts lie on the GPU."""
        self._addresses = {_INPUT: pixels, _OUTPUT: features}

    def new_context(self) -> Any:
        """Make a context to run the plan in."""
        with device_wide():
            context = self._not_none(self._engine.create_execution_context())
        for name, address in self._addresses.items():
            self._require(context.set_tensor_address(name, address), "set_tensor_address")
        return context

    def set_shape(self, context: Any, shape: tuple[int, ...]) -> None:
        """Set the shape of the pixels that the next run reads."""
        self._require(context.set_input_shape(_INPUT, shape), "set_input_shape")

    def enqueue(self, context: Any, stream: int) -> None:
        """Queue a run of the batch in the input buffer."""
        self._require(context.execute_async_v3(stream), "execute_async_v3")

    def close(self) -> None:
        """Free the engine, then the runtime, as TensorRT asks for; contexts must be gone by now."""
        self._engine = self._runtime = None

    def _check(self, max_batch: int, contract: InputContract) -> None:
        engine = self._engine
        names = {engine.get_tensor_name(k) for k in range(engine.num_io_tensors)}
        wanted = (max_batch, *contract.picture_shape)
        if names == {_INPUT, _OUTPUT}:
            most = tuple(engine.get_tensor_profile_shape(_INPUT, 0)[2])
            out = tuple(engine.get_tensor_shape(_OUTPUT))[1:]
            number = np.dtype(self._trt.nptype(engine.get_tensor_dtype(_INPUT)))
            if (most, out, number) == (wanted, self.shape_out, self.dtype_in):
                return
        raise BundleError(
            f"{self._label} is not a plan of this bundle's backbone",
            hint="build it again: anoco-edge build BUNDLE, with `force=True`",
        )

    def _not_none(self, value: Any) -> Any:
        """Return what TensorRT made; None means that it failed, and the log says why."""
        if value is None:
            error = plan_error(self._who, self._label, self._log.errors_logged)
            self._log.errors_logged.clear()
            raise error if error.exit_code == 3 else BundleError(error.what, hint=error.hint)
        return value

    def _require(self, done: bool, call: str) -> None:
        """Raise an error, with the reason that was logged, if a call returned False."""
        why = self._log.errors_logged.first() or "it gave no reason"
        self._log.errors_logged.clear()  # these errors are not those of the next call
        if not done:
            raise EngineError(f"{self._who} failed at {call}: {why}", hint="see anoco-edge doctor")
