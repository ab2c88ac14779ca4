"""TensorRT and TensorRT-RTX: the backbone as a plan on an NVIDIA GPU.

This engine has not run on a GPU yet: no machine that built it had one. Tests walk through all of
it with doubles of `tensorrt` and of CUDA on the processor's memory. On a device
`anoco-edge build BUNDLE` runs the self-test, which compares what it computes with torch.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle, InputContract
from anoco_edge.engines.cuda_graphs import GraphLauncher
from anoco_edge.errors import AnocoError, BundleError, EngineError, UsageError
from anoco_edge.plans.cache import Fingerprint, PlanRecord, find_plan, read_plan
from anoco_edge.plans.device import DeviceMemory, current_device, open_memory
from anoco_edge.plans.tensorrt_builder import refusal
from anoco_edge.plans.tensorrt_modules import (
    FLAVOURS,
    Flavour,
    check_installed,
    collecting_log,
    load_module,
    title,
)
from anoco_edge.scoring.device_array import DeviceArray

if TYPE_CHECKING:
    from anoco_edge.engines import EngineSettings

_INPUT, _OUTPUT = "pixels", "features"


def why_not(flavour: str, bundle: Bundle | None = None) -> str:
    """Why this engine cannot run here (with this bundle); empty when it can.

    >>> why_not("tensorflow")
    "unknown engine 'tensorflow'; use tensorrt or tensorrt-rtx"
    """
    try:
        known = _known(flavour)
        here = _here(known)
        if bundle is not None:
            _choose(known, bundle, here)
    except AnocoError as error:
        return str(error)
    return ""


class TensorRtEngine:
    """A plan that is loaded. Buffers are allocated once, for the largest batch."""

    def __init__(
        self,
        flavour: Flavour,
        bundle: Bundle,
        settings: EngineSettings,
        *,
        plan: PlanRecord | None = None,
    ) -> None:
        """`plan` is for who wants that one of the cache and no other."""
        # The GPU has neither threads nor an arena of ours, so nothing of `settings` applies.
        flavour = _known(flavour)
        here = _here(flavour)
        choice = _cached(plan) if plan is not None else _choose(flavour, bundle, here)
        self.name: str = flavour
        self.max_batch = choice.max_batch
        # A plan is built by measuring: another build may round otherwise, and is tested anew.
        self.fingerprint = "|".join(
            (self.name, here.version, here.gpu, here.capability, here.driver, choice.sha256)
        )
        contract = bundle.manifest.input
        self._plan = _Plan(flavour, choice, contract)
        self._memory: DeviceMemory = open_memory()
        self._release = weakref.finalize(self, self._memory.close)
        self._release.atexit = False  # the driver takes it all back by itself then
        self._lock = threading.Lock()  # a context serves one batch at a time
        self._shape = (contract.height, contract.width, 3)
        picture = int(np.prod(self._shape))
        self._pixels = self._memory.allocate(self.max_batch * picture)
        self._features = self._memory.allocate(self.max_batch * self._plan.bytes_out)
        self._pixels_here = self._memory.allocate_host(self.max_batch * picture)
        self._features_here = self._memory.allocate_host(self.max_batch * self._plan.bytes_out)
        self._plan.bind(self._pixels, self._features)
        self._launches = GraphLauncher(self._plan, self._memory)

    @property
    def remarks(self) -> tuple[str, ...]:
        """That it is slower than it could be, and why; known after the first picture."""
        return (f"{self.name}: {self._launches.remark}",) if self._launches.remark else ()

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Patch features of a batch of prepared pictures; a large one is run in pieces."""
        self._check(pixels)
        found = np.empty((len(pixels), *self._plan.shape_out), self._plan.dtype_out)
        with self._lock:
            for start in range(0, len(pixels), self.max_batch):
                batch = slice(start, start + self.max_batch)
                self._run(pixels[batch], found[batch])
        return found.astype(np.float32, copy=False)

    @contextlib.contextmanager
    def on_device(self, pixels: NDArray[np.uint8]) -> Iterator[DeviceArray]:
        """The same of at most `max_batch` pictures, where the GPU left them; only inside `with`."""
        self._check(pixels)
        with self._lock:
            self._queue(pixels)
            self._memory.wait()
            shape = (len(pixels), *self._plan.shape_out)
            yield DeviceArray(self._features, shape, self._plan.dtype_out, owner=self)

    def close(self) -> None:
        """Give the GPU's memory back; the engine cannot be used after that."""
        self._launches.close()
        self._plan.close()
        self._release()

    def _run(self, pixels: NDArray[np.uint8], found: NDArray[Any]) -> None:
        self._queue(pixels)
        here = self._features_here[: found.nbytes]
        self._memory.copy_out(here, self._features)
        self._memory.wait()
        found[...] = here.view(found.dtype).reshape(found.shape)

    def _queue(self, pixels: NDArray[np.uint8]) -> None:
        here = self._pixels_here[: pixels.size]
        here.reshape(pixels.shape)[...] = pixels
        self._memory.copy_in(self._pixels, here)
        self._launches.queue(pixels.shape)

    def _check(self, pixels: NDArray[np.uint8]) -> None:
        if pixels.shape[1:] != self._shape or pixels.dtype != np.uint8:
            raise UsageError(
                f"pixels are {pixels.dtype} of shape {pixels.shape}, "
                f"the backbone takes uint8 of shape (batch, {', '.join(map(str, self._shape))})"
            )


@dataclass(frozen=True)
class _Choice:
    """A plan that fits, wherever it lies; `read` checks its hash."""

    label: str
    sha256: str
    max_batch: int
    read: Callable[[], bytes]


def _known(flavour: str) -> Flavour:
    for known in FLAVOURS:
        if flavour == known:
            return known
    raise UsageError(f"unknown engine {flavour!r}", hint=f"use {' or '.join(FLAVOURS)}")


def _here(flavour: Flavour) -> Fingerprint:
    """Module and GPU of this machine; what is missing is an error."""
    check_installed(flavour)
    device = current_device()  # before a large module is loaded in vain
    return Fingerprint.of(str(load_module(flavour).__version__), device)


def _choose(flavour: Flavour, bundle: Bundle, here: Fingerprint) -> _Choice:
    """A plan that was built here, which the self-test has seen, else the bundle's own."""
    found = find_plan(bundle.graph_identity(), flavour, here)
    if found is not None:
        return _cached(found)
    for plan in bundle.manifest.plans:
        fits = (plan.engine, plan.version, plan.target)
        if fits == (flavour, here.version, here.capability):
            record = bundle.file(plan.path)
            path = str(bundle.path / plan.path)
            return _Choice(path, record.sha256, plan.max_batch, partial(bundle.read, record))
    raise BundleError(
        f"there is no plan of {bundle.path} for {title(flavour)} {here.version} on "
        f"{here.gpu} ({here.capability})",
        hint=f"run: anoco-edge build {bundle.path} --engine {flavour}",
    )


def _cached(plan: PlanRecord) -> _Choice:
    return _Choice(str(plan.path), plan.sha256, plan.max_batch, partial(read_plan, plan))


class _Plan:
    """A deserialised plan, checked against what the manifest promises."""

    def __init__(self, flavour: Flavour, choice: _Choice, contract: InputContract) -> None:
        self._who, self._label = title(flavour), choice.label
        self._trt = load_module(flavour)
        self._log = collecting_log(self._trt)
        self._runtime = self._trt.Runtime(self._log)
        self._engine = self._there(self._runtime.deserialize_cuda_engine(choice.read()))
        self.shape_out = (contract.rows * contract.cols, contract.dim)
        self._check(choice.max_batch, contract)
        self.dtype_out = np.dtype(self._trt.nptype(self._engine.get_tensor_dtype(_OUTPUT)))
        self.bytes_out = int(np.prod(self.shape_out)) * self.dtype_out.itemsize

    def bind(self, pixels: int, features: int) -> None:
        """Where input and output of all contexts lie on the GPU."""
        self._addresses = {_INPUT: pixels, _OUTPUT: features}

    def new_context(self) -> Any:
        """To run it in."""
        context = self._there(self._engine.create_execution_context())
        for name, address in self._addresses.items():
            self._must(context.set_tensor_address(name, address), "set_tensor_address")
        return context

    def set_shape(self, context: Any, shape: tuple[int, ...]) -> None:
        """Of the pixels."""
        self._must(context.set_input_shape(_INPUT, shape), "set_input_shape")

    def enqueue(self, context: Any, stream: int) -> None:
        """Queue the run of a batch that lies in the input buffer."""
        self._must(context.execute_async_v3(stream), "execute_async_v3")

    def close(self) -> None:
        """In the order that TensorRT asks for: contexts, which are gone, engine, runtime."""
        self._engine = self._runtime = None

    def _check(self, max_batch: int, contract: InputContract) -> None:
        engine = self._engine
        names = {engine.get_tensor_name(k) for k in range(engine.num_io_tensors)}
        wanted = (max_batch, contract.height, contract.width, 3)
        if names == {_INPUT, _OUTPUT}:
            most = tuple(engine.get_tensor_profile_shape(_INPUT, 0)[2])
            out = tuple(engine.get_tensor_shape(_OUTPUT))[1:]
            number = self._trt.nptype(engine.get_tensor_dtype(_INPUT))
            if (most, out, number) == (wanted, self.shape_out, np.uint8):
                return
        raise BundleError(
            f"{self._label} is not a plan of this bundle's backbone",
            hint="build it again with: anoco-edge build BUNDLE --force",
        )

    def _there(self, value: Any) -> Any:
        if value is None:
            error = refusal(self._who, self._label, self._log.errors_logged)
            self._log.errors_logged.clear()
            raise error if error.exit_code == 3 else BundleError(error.what, hint=error.hint)
        return value

    def _must(self, done: bool, call: str) -> None:
        why = self._log.errors_logged.first() or "it gave no reason"
        self._log.errors_logged.clear()  # what it said of this call is not the next one's fault
        if not done:
            raise EngineError(f"{self._who} failed at {call}: {why}", hint="see anoco-edge doctor")
