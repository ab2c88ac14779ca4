"""Builds a plan from an ONNX graph, with TensorRT or TensorRT-RTX.

Precision is decided by the graph: networks are strongly typed and TF32 is off. TensorRT-RTX builds
without a GPU, and its side is tested so. TensorRT needs a GPU, so its side has only run with a
double of the module.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anoco_edge import machine
from anoco_edge.bundle import InputContract
from anoco_edge.bundle.parity_report import KernelCounts
from anoco_edge.errors import AnocoError, EnvironmentMissingError, UsageError
from anoco_edge.plans.device import current_device
from anoco_edge.plans.fp32_logits import widen_logits
from anoco_edge.plans.kernel_counts import read_kernel_counts
from anoco_edge.plans.mapped_weights import MappedWeights
from anoco_edge.plans.tensorrt_modules import (
    ErrorLog,
    PlanEngine,
    collecting_log,
    load_module,
    title,
)

RTX_TARGETS = ("sm75", "sm80", "sm86", "sm89", "sm120", "sm121")

Shape = tuple[int, ...]
Profile = Mapping[str, tuple[Shape, Shape, Shape]]
"""The smallest, usual and largest shape of each input that has a dynamic dimension."""
Progress = Callable[[str, int, int], None]
"""Is called with a phase, how many of its steps are done and how many there are. The threads of the
builder call it too."""


@dataclass(frozen=True)
class BuiltPlan:
    """A serialized plan as trtexec would load it, and what building it took.

    `kernels` is there where they were to be counted and the builder lists them.
    """

    content: bytes | memoryview  # TensorRT's own memory, because a copy would take as much again
    plan_engine: PlanEngine
    version: str
    targets: tuple[str, ...]
    seconds: float
    peak_memory_mb: float
    timing_cache: bytes = b""
    kernels: KernelCounts | None = None

    @property
    def size(self) -> int:
        return len(self.content)


def backbone_profile(contract: InputContract, batch: int = 1) -> Profile:
    """Describe batches of 1 up to `batch` pictures.

    >>> grid = InputContract(width=32, height=16, stride=16, rows=1, cols=2, dim=8)
    >>> backbone_profile(grid, 4)["pixels"]
    ((1, 16, 32, 3), (4, 16, 32, 3), (4, 16, 32, 3))
    """
    if batch < 1:
        raise UsageError(f"a batch of {batch} pictures cannot be built", hint="give 1 or more")
    picture = contract.picture_shape
    return {"pixels": ((1, *picture), (batch, *picture), (batch, *picture))}


def parse_targets(text: str) -> tuple[str, ...]:
    """Read GPU generations, separated by commas; each is returned once.

    >>> parse_targets("sm86, SM89,sm86")
    ('sm86', 'sm89')
    """
    targets = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))
    for target in targets:
        if target not in RTX_TARGETS:
            raise UsageError(
                f"{target or text!r} is not a target of TensorRT-RTX",
                hint=f"use {', '.join(RTX_TARGETS)}; a plan for a Jetson is built on the "
                "Jetson: anoco-edge build BUNDLE, with `engine='tensorrt'`",
            )
    return targets


def build_plan(
    model: bytes | Path,
    profile: Profile,
    *,
    plan_engine: PlanEngine,
    targets: Sequence[str] = (),
    name: str = "the graph",
    workspace_mb: int | None = None,
    timing_cache: bytes = b"",
    progress: Progress | None = None,
    count_kernels: bool = False,
    fp32_logits: bool = False,
) -> BuiltPlan:
    """Parse a graph and build its plan.

    A graph that comes as a path is mapped and not read, and finds its weights beside it.
    `name` is what errors call it. `targets` are for TensorRT-RTX only; TensorRT builds for the GPU
    that it finds. `count_kernels` makes the plan larger: it then describes its kernels.
    `fp32_logits` changes the attention of the network, see `fp32_logits.widen_logits`. Ctrl-C ends
    the build at its next step.
    """
    targets = parse_targets(",".join(targets)) if targets else ()
    if targets and plan_engine == "tensorrt":
        raise UsageError("TensorRT builds for the GPU that it runs on", hint="leave out `targets`")
    trt = load_module(plan_engine)
    if plan_engine == "tensorrt":
        current_device()
    machine.reset_peak()
    start = time.perf_counter()
    build = _PlanBuild(trt, plan_engine, name)
    build.parse(model)
    del model
    if fp32_logits:
        widen_logits(trt, build.network)
    build.configure(profile, targets, workspace_mb)
    if count_kernels:
        build.describe_kernels()
    timing = build.attach_timing_cache(timing_cache)
    content = build.run(progress)
    measured = bytes(timing.serialize()) if timing is not None else b""
    del timing
    build.release()
    return BuiltPlan(
        content=content,
        plan_engine=plan_engine,
        version=str(trt.__version__),
        targets=targets,
        seconds=time.perf_counter() - start,
        peak_memory_mb=machine.peak_mb(),
        timing_cache=measured,
        kernels=build.kernels() if count_kernels else None,
    )


class _PlanBuild:
    """One build. TensorRT's objects refer to each other, so they are kept until it is done."""

    def __init__(self, trt: Any, plan_engine: PlanEngine, name: str) -> None:
        self._trt, self._plan_engine, self._name = trt, plan_engine, name
        self._log = collecting_log(trt)
        try:
            self._builder = trt.Builder(self._log)
        except (TypeError, RuntimeError) as error:  # pybind raises these when it got null
            why = self._log.errors_logged.first() or str(error)
            raise EnvironmentMissingError(
                f"{title(plan_engine)} cannot build here: {why}",
                hint="check the driver and the GPU with: anoco-edge doctor",
            ) from None
        # TensorRT 10 must be told to be strongly typed; 11 and RTX know nothing else.
        typed = getattr(getattr(trt, "NetworkDefinitionCreationFlag", None), "STRONGLY_TYPED", None)
        self.network = self._builder.create_network(0 if typed is None else 1 << int(typed))
        self._config = self._builder.create_builder_config()

    def parse(self, model: bytes | Path) -> None:
        # The network's weights may still lie in the parser and in the bytes, so both are kept.
        parser = self._trt.OnnxParser(self.network, self._log)
        self._model: bytes | Path | MappedWeights | None = model
        self._parser = parser
        # Older versions of TensorRT take weights from the file alone, and copy them.
        if isinstance(model, Path) and hasattr(parser, "load_initializer"):
            self._model = mapped = MappedWeights(model)
            parsed = mapped.parse(parser)
        elif isinstance(model, Path):  # its external data is found beside it
            parsed = parser.parse_from_file(str(model))
        else:
            parsed = parser.parse(model)
        if parsed:
            return
        first = parser.get_error(0) if parser.num_errors else None
        node = f"{first.node_operator()} {first.node_name()!r}" if first else ""
        raise self._error(first.desc() if first else "", node if node.strip(" '") else "")

    def configure(self, profile: Profile, targets: Sequence[str], workspace_mb: int | None) -> None:
        trt, config = self._trt, self._config
        config.clear_flag(trt.BuilderFlag.TF32)  # it changes 0.5 to 1.3 % of neighbor sets
        if workspace_mb is not None:
            config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace_mb << 20)
        if targets:
            config.num_compute_capabilities = len(targets)
            for k, target in enumerate(targets):
                config.set_compute_capability(getattr(trt.ComputeCapability, target.upper()), k)
        self._check_inputs(profile)
        shapes = self._builder.create_optimization_profile()
        for tensor, (least, usual, most) in profile.items():
            shapes.set_shape(tensor, least, usual, most)
        if config.add_optimization_profile(shapes) < 0:
            raise self._error(f"the shapes {dict(profile)} are out of order")

    def describe_kernels(self) -> None:
        """Let the builder log every kernel that it makes."""
        self._config.profiling_verbosity = self._trt.ProfilingVerbosity.DETAILED
        self._log.messages = []

    def kernels(self) -> KernelCounts | None:
        """Count the kernels that the builder logged."""
        return read_kernel_counts(self._log.messages)

    def attach_timing_cache(self, content: bytes) -> Any:
        """Use what earlier builds measured; None for RTX, which measures nothing."""
        if self._plan_engine == "tensorrt-rtx" or not hasattr(self._config, "create_timing_cache"):
            return None
        cache = self._config.create_timing_cache(content)
        if cache is None or not self._config.set_timing_cache(cache, False):
            cache = self._config.create_timing_cache(b"")  # it is of another version
            self._config.set_timing_cache(cache, False)
        self._log.errors_logged.clear()
        return cache

    def release(self) -> None:
        """Free graph, network and builder, before the plan is written."""
        self._model = self._parser = self.network = self._config = self._builder = None
        machine.give_back_memory()  # or it stays with the process, which then loads the plan

    def run(self, progress: Progress | None) -> memoryview:
        """Build the plan; this is what takes minutes."""
        monitor = _monitor(self._trt, progress)
        if monitor is not None:
            self._config.progress_monitor = monitor
        # In a thread of its own, so that this one notices Ctrl-C while the builder is in C++.
        with ThreadPoolExecutor(1, thread_name_prefix="anoco-build") as pool:
            try:
                plan = pool.submit(
                    self._builder.build_serialized_network, self.network, self._config
                ).result()
            except KeyboardInterrupt:
                if monitor is not None:
                    monitor.progress.cancel()
                raise
        if monitor is not None and monitor.progress.failure is not None:
            raise monitor.progress.failure
        if plan is None:
            raise self._error()
        return memoryview(plan).cast("B").toreadonly()

    def _check_inputs(self, profile: Profile) -> None:
        inputs = [self.network.get_input(k) for k in range(self.network.num_inputs)]
        dynamic = {tensor.name for tensor in inputs if -1 in tuple(tensor.shape)}
        if dynamic - set(profile) or set(profile) - {tensor.name for tensor in inputs}:
            raise UsageError(
                f"{self._name} has dynamic inputs {sorted(dynamic)}, shapes were given for "
                f"{sorted(profile)}",
                hint="give the shapes of exactly these inputs",
            )

    def _error(self, why: str = "", node: str = "") -> AnocoError:
        return plan_error(
            f"{title(self._plan_engine)} {self._trt.__version__}",
            self._name + (f" at {node}" if node else ""),
            self._log.errors_logged,
            why,
        )


def plan_error(who: str, what: str, errors_logged: ErrorLog, why: str = "") -> AnocoError:
    """Make the error for a plan that was not built or loaded, out of what TensorRT logged.

    Its kind says whose fault it is: the machine's or the graph's.
    """
    if errors_logged.mention("out of memory", "outofmemory", "bad_alloc", "memory allocation"):
        return EnvironmentMissingError(
            f"{who} ran out of memory building {what}: {errors_logged.first()}",
            hint="stop what else uses the memory, or build with a smaller `batch`",
        )
    if not why and errors_logged.mention("cuda runtime", "cudaerror", "cuda initialization"):
        return EnvironmentMissingError(
            f"{who} cannot use the GPU: {errors_logged.first()}",
            hint="check the driver with: anoco-edge doctor",
        )
    if errors_logged.mention("fp32 gemm is not supported"):
        return AnocoError(
            f"{who} has no FP32 matrix products for sm75, and {what} needs some",
            hint="leave sm75 out, or export with `precision='fp16'` and "
            "`islands='embedding,softmax,layernorm,residual,output'`",
        )
    return AnocoError(
        f"{who} refuses {what}: {why or errors_logged.first() or 'it gave no reason'}",
        hint="use another engine, or export it in another way",
    )


class _BuildProgress:
    """Passes on how far a build is, and tells the builder's threads whether to go on."""

    def __init__(self, progress: Progress | None) -> None:
        self.failure: BaseException | None = None
        self._progress = progress
        self._totals: dict[str, int] = {}
        self._lock = threading.Lock()
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def start(self, phase: str, total: int) -> None:
        self._totals[phase] = total
        self._tell(phase, 0)

    def step(self, phase: str, step: int) -> bool:
        self._tell(phase, step + 1)
        return not self._cancelled

    def _tell(self, phase: str, step: int) -> None:
        if self._progress is None or self._cancelled:
            return
        try:
            with self._lock:
                self._progress(phase, step, self._totals.get(phase, step))
        except BaseException as error:  # noqa: BLE001 (it must not pass through C++, and is raised later)
            self.failure = error
            self.cancel()


def _monitor(trt: Any, progress: Progress | None) -> Any:
    """Make TensorRT's own kind of monitor; None where the version has none."""
    if not hasattr(trt, "IProgressMonitor"):
        return None

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)  # pybind asks for this call, not for super()
            self.progress = _BuildProgress(progress)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self.progress.start(phase_name, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return self.progress.step(phase_name, step)

        def phase_finish(self, phase_name: str) -> None:
            pass

    return Monitor()
