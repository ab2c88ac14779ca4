"""Measures everything that a report holds; what cannot be measured here is listed in it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TypeVar

import numpy as np

from anoco_edge import __version__
from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.store import now
from anoco_edge.detector import Detector
from anoco_edge.diagnostics.bench.agreement import compare
from anoco_edge.diagnostics.bench.features import Size, clustered
from anoco_edge.diagnostics.bench.frames import bench_frames, bench_pictures
from anoco_edge.diagnostics.device_report.gemm_peak import GemmPeak, measure_gemm_peak
from anoco_edge.diagnostics.device_report.hard_pictures import HardPicture, time_hard_pictures
from anoco_edge.diagnostics.device_report.report import (
    BundleFacts,
    DeviceFacts,
    DeviceReport,
    FrameFigures,
    FusedKernels,
    PlanFacts,
    ScoringCheck,
)
from anoco_edge.diagnostics.device_report.sanitizer import SanitizerRun, run_sanitizer
from anoco_edge.diagnostics.device_report.state import read_state, system_facts
from anoco_edge.diagnostics.device_report.two_cameras import CameraFigures, time_two_cameras
from anoco_edge.engines import ENGINES, EngineSettings, choose_engine, open_engine
from anoco_edge.engines.selftest import SelfTest, check_engine
from anoco_edge.errors import AnocoError, EngineError, EnvironmentMissingError
from anoco_edge.images.decode import read_picture
from anoco_edge.machine import machine, versions
from anoco_edge.pipeline.base import Runtime
from anoco_edge.plans.cache import PlanRecord
from anoco_edge.plans.tensorrt_modules import PLAN_ENGINES
from anoco_edge.scoring import SCORERS, References, choose_scorer, open_scorer
from anoco_edge.scoring.cuda import CudaDeviceInfo
from anoco_edge.scoring.registry import eps_of
from anoco_edge.scoring.types import Floats

_PACKAGES = ("numpy", "onnxruntime", "onnxruntime-gpu", "openvino", "tensorrt", "cuda-bindings")
_QUERIES = 576  # few, because the reference is slow
_REFERENCES = 4096
_MOST_HARD = 50  # frames of each hard picture, and of each of two cameras twice as many
_SIMULATED_GEMM = 64  # a simulated GPU multiplies on the processor

Tell = Callable[[str], None]
"""Is called with what is being measured."""

T = TypeVar("T")


@dataclass(frozen=True)
class ReportRequest:
    """What to measure. `auto` stands for what runs on the GPU; a name is that part and no other."""

    bundle: Bundle
    product: str | None = None
    engine: str = "auto"
    scorer: str = "auto"
    runtime: Runtime = "python"
    frames: int = 200
    pictures: tuple[str, ...] = ()
    batch: int = 1
    force: bool = False
    sanitize: bool = False
    settings: EngineSettings = field(default_factory=EngineSettings)


def measure_device(
    request: ReportRequest, tell: Tell = lambda _: None
) -> tuple[DeviceReport, list[AnocoError]]:
    """Measure; returns the report, and the errors that it lists, the worst first."""
    return _Measurement(request, tell).run()


def gpu_engine() -> str:
    """Choose the engine of this machine's GPU; without one the error says why, and what to do."""
    reasons = []
    for spec in ENGINES.by_rank():
        if not spec.gpu:
            continue
        reason = spec.why_not(spec.name)
        if not reason:
            return spec.name
        reasons.append(f"{spec.name}: {reason}")
    raise EnvironmentMissingError(
        f"no engine runs on a GPU here ({reasons[0]})",
        hint="see anoco-edge doctor; `engine='onnxruntime'` measures the processor instead",
    )


class _Measurement:
    """Measures for one report, and collects what fails."""

    def __init__(self, request: ReportRequest, tell: Tell) -> None:
        self._request, self._tell = request, tell
        self._bundle = request.bundle
        if request.engine == "auto":
            self._engine = gpu_engine()
        else:
            self._engine = choose_engine(request.engine, request.bundle).name
        self._on_gpu = ENGINES.get(self._engine).gpu
        self._scorer = self._choose_scorer(request.scorer)
        self._plan_record: PlanRecord | None = None
        self._not_measured: list[str] = []
        self._problems: list[AnocoError] = []

    def run(self) -> tuple[DeviceReport, list[AnocoError]]:
        before = read_state()
        planned = self._engine in PLAN_ENGINES
        plan = self._attempt("building the plan", self._build) if planned else None
        selftest = self._attempt("the self-test", self._selftest)
        agreement = self._attempt("scoring beside the reference", self._agreement)
        frames = self._attempt("frames", self._frames)
        hard = cameras = None
        if frames is not None:
            hard = self._attempt("the wrong part and no part", self._hard_pictures)
            cameras = self._attempt("two cameras and product changes", self._cameras)
        fused = self._attempt("what is fused", self._fused) if planned else None
        gpu = _gpu() if self._on_gpu or SCORERS.get(self._scorer).gpu else None
        gemm = None
        if gpu is not None:
            gemm = self._attempt("FP16 products", lambda: _gemm(gpu))
        sanitizer = None
        if self._request.sanitize:
            sanitizer = self._attempt("compute-sanitizer", self._sanitize)
        self._list_what_is_missing()
        report = DeviceReport(
            created=now(),
            anoco_edge=__version__,
            device=_device_facts(gpu),
            simulated=gpu is not None and gpu.simulated,
            bundle=self._about_bundle(),
            engine=self._engine,
            scorer=self._scorer,
            runtime=self._request.runtime,
            plan=plan,
            selftest=selftest,
            agreement=tuple(agreement or ()),
            frames=frames,
            fused=fused,
            gemm=gemm,
            hard_pictures=hard or (),
            cameras=cameras,
            sanitizer=sanitizer or (),
            before=before,
            after=read_state(),
            not_measured=tuple(self._not_measured),
            problems=tuple(str(error) for error in self._problems),
        )
        return report, sorted(self._problems, key=lambda error: -error.exit_code)

    # ---- what is measured

    def _build(self) -> PlanFacts:
        from anoco_edge.engines.plan_trial import build_tested_plan

        request = self._request
        plan_engine = next(name for name in PLAN_ENGINES if name == self._engine)
        outcome = build_tested_plan(
            self._bundle, plan_engine, batch=request.batch, force=request.force
        ).outcome
        record = self._plan_record = outcome.record
        return PlanFacts(
            engine=record.plan_engine,
            version=record.fingerprint.version,
            built_now=outcome.built,
            seconds=record.seconds,
            peak_memory_mb=record.peak_memory_mb,
            size=record.size,
            batch=record.max_batch,
        )

    def _selftest(self) -> SelfTest:
        engine = open_engine(self._engine, self._bundle, self._request.settings)
        try:
            return check_engine(self._bundle, engine, force=True)
        finally:
            close = getattr(engine, "close", None)
            if close is not None:
                close()

    def _agreement(self) -> list[ScoringCheck]:
        dim = self._bundle.manifest.input.dim
        query, references = clustered(Size(_QUERIES, _REFERENCES, dim))
        return [
            self._compare("made up", query.astype(kind), references.astype(kind))
            for kind in (np.float32, np.float16)
        ]

    def _compare(self, what: str, query: Floats, references: Floats) -> ScoringCheck:
        bank, _ = References.of(references)
        oracle = open_scorer("reference", bank).score(query)
        found = open_scorer(self._scorer, bank).score(query)
        eps = eps_of(self._scorer, half=query.dtype == np.float16)
        result = compare(found.energy, oracle, query, eps=eps)
        if result.disagree:
            self._problems.append(
                AnocoError(
                    f"scorer {self._scorer} disagrees with the reference on {result.disagree} of "
                    f"{len(query)} rows ({query.dtype})",
                    hint="do not inspect with it: use `scorer='onnx'`, and send this report in",
                )
            )
        size = f"{len(query)}x{len(references)}x{query.shape[1]}"
        return ScoringCheck(
            features=what,
            size=size,
            operands=str(query.dtype),
            undecided=result.undecided,
            disagree=result.disagree,
        )

    def _frames(self) -> FrameFigures | None:
        request = self._request
        if request.product is None and not self._bundle.products():
            self._not_measured.append(
                f"frames: {self._bundle.path.name} has no references; teach it with: anoco-edge "
                f"enroll {self._bundle.path} PICTURES"
            )
            return None
        detector = self._detector(request.product)
        paths, what = bench_pictures(self._bundle, detector.product, request.pictures)
        result = bench_frames(
            detector,
            paths,
            frames=request.frames,
            settings=request.settings,
            pictures_are=what,
            step=self._counting("frame"),
        )
        return FrameFigures(
            stages=result.stages,
            throughput=result.throughput,
            memory=result.memory,
            summary=result.in_words(),
            settings=result.settings,
        )

    def _hard_pictures(self) -> tuple[HardPicture, ...]:
        detector = self._detector(self._request.product)
        paths, _ = bench_pictures(self._bundle, detector.product, self._request.pictures)
        frames = min(self._request.frames, _MOST_HARD)
        good = read_picture(paths[0])
        return time_hard_pictures(detector, good, frames, self._counting("hard picture"))

    def _cameras(self) -> CameraFigures:
        request = self._request
        first = self._bundle.product(request.product)
        paths, _ = bench_pictures(self._bundle, first, request.pictures)
        others = (self._bundle.product(name) for name in self._bundle.products())
        fitting = [other.name for other in others if _takes_pictures_of(other, first)]
        frames = min(request.frames, 2 * _MOST_HARD)
        found = time_two_cameras(self._detector, [first.name, *fitting], paths, frames)
        if found.failed:
            self._problems.append(
                EngineError(
                    f"frames failed while products were changed: {found.failed[0]}",
                    hint="do not change products while cameras inspect, and send this report in",
                )
            )
        return found

    def _fused(self) -> FusedKernels | None:
        from anoco_edge.diagnostics.device_report.inspector import count_kernels

        if self._plan_record is None:
            return None  # why there is none is among the problems
        fusion = self._bundle.manifest.parity.get("fusion")
        blocks = fusion.get("blocks") if isinstance(fusion, dict) else None
        counts = count_kernels(self._bundle, self._plan_record)
        return FusedKernels(**asdict(counts), blocks=blocks if isinstance(blocks, int) else None)

    def _sanitize(self) -> tuple[SanitizerRun, ...]:
        request = self._request
        product = self._bundle.product(request.product)
        paths, _ = bench_pictures(self._bundle, product, request.pictures)
        how = (product.name, self._engine, self._scorer, request.runtime)
        runs = run_sanitizer((self._bundle.path, *how, paths[0]))
        for run in runs:
            if run.errors != 0:
                self._problems.append(
                    EngineError(
                        f"compute-sanitizer {run.tool} reports {run.errors or 'no summary'}",
                        hint="its last lines are in the report: send it in",
                    )
                )
        return runs

    def _detector(self, product: str | None) -> Detector:
        request = self._request
        return Detector(
            self._bundle,
            product,
            self._engine,
            self._scorer,
            runtime=request.runtime,
            settings=request.settings,
        )

    def _counting(self, what: str) -> Callable[[], None]:
        """Return a function that tells how often it was called."""
        numbers = count(1)
        return lambda: self._tell(f"{what} {next(numbers)}")

    # ---- what is known

    def _choose_scorer(self, name: str) -> str:
        if name != "auto":
            return choose_scorer(name).name
        if self._on_gpu:
            return next(spec.name for spec in SCORERS.by_rank() if spec.gpu)
        return choose_scorer("auto").name

    def _about_bundle(self) -> BundleFacts:
        manifest = self._bundle.manifest
        return BundleFacts(
            name=self._bundle.name,
            sha256=manifest.checksum,
            backbone=manifest.backbone.id,
            precision=manifest.backbone.precision,
            random_weights=manifest.backbone.weights.random,
            input=f"{manifest.input.width}x{manifest.input.height}",
        )

    def _list_what_is_missing(self) -> None:
        if not self._on_gpu:
            self._not_measured.append(f"the backbone on a GPU: {self._engine} uses none")
        if not SCORERS.get(self._scorer).gpu:
            self._not_measured.append(f"scoring on a GPU: {self._scorer} uses none")

    def _attempt(self, what: str, work: Callable[[], T]) -> T | None:
        """Measure one part; an error of ours is recorded, and the other parts go on."""
        self._tell(what)
        try:
            return work()
        except AnocoError as error:
            self._problems.append(error)
            self._not_measured.append(f"{what}: {error}")
            return None


def _takes_pictures_of(other: Product, first: Product) -> bool:
    """Whether another product can inspect the pictures of the first one."""
    if other.name == first.name or not other.references:
        return False
    sizes = {(ref.width, ref.height) for ref in (other.references[0], first.references[0])}
    return len(sizes) == 1


def _gemm(gpu: CudaDeviceInfo) -> GemmPeak:
    return measure_gemm_peak(_SIMULATED_GEMM, 1) if gpu.simulated else measure_gemm_peak()


def _gpu() -> CudaDeviceInfo:
    from anoco_edge.scoring.cuda import describe

    return describe()


def _device_facts(gpu: CudaDeviceInfo | None) -> DeviceFacts:
    """Describe the device; the GPU's facts are as CUDA calls them."""
    here, system = machine(), system_facts()
    facts: DeviceFacts = {
        "cpu": here["cpu"],
        "machine": here["machine"],
        "cores": here["cores"],
        "memory_mb": here["memory_mb"],
        "system": platform.platform(),
        "versions": versions(_PACKAGES),
    }
    if "board" in system:
        facts["board"] = system["board"]
    if "jetson_linux" in system:
        facts["jetson_linux"] = system["jetson_linux"]
    if "kernel" in system:
        facts["kernel"] = system["kernel"]
    if gpu is not None:
        facts["gpu"] = gpu.name
        facts["capability"] = f"sm{gpu.capability}"
        facts["cuda_driver"] = gpu.driver_version
        facts["gpu_memory_mb"] = round(gpu.memory / 1e6)
        facts["device_code"] = gpu.code
    return facts
