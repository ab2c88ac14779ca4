"""Everything a report holds, measured in one go; what cannot be measured here is said."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import numpy as np

from anoco_edge import __version__
from anoco_edge.bundle import Bundle
from anoco_edge.bundle.store import now
from anoco_edge.detector import Detector
from anoco_edge.diagnostics.bench.agreement import compare
from anoco_edge.diagnostics.bench.features import Size, clustered
from anoco_edge.diagnostics.bench.frames import bench_frames, bench_pictures
from anoco_edge.diagnostics.device_report.report import Agreement, Report
from anoco_edge.diagnostics.device_report.state import read_state, system_facts
from anoco_edge.engines import EngineSettings, choose_engine, open_engine
from anoco_edge.engines.selftest import check_engine
from anoco_edge.errors import AnocoError, EnvironmentMissingError
from anoco_edge.machine import machine, versions
from anoco_edge.pipeline.base import Runtime
from anoco_edge.plans.tensorrt_modules import FLAVOURS, Flavour
from anoco_edge.scoring import References, choose_scorer, open_scorer
from anoco_edge.scoring.types import Floats

GPU_ENGINES = ("tensorrt", "tensorrt-rtx", "onnxruntime-tensorrt", "onnxruntime-cuda")
_PACKAGES = ("numpy", "onnxruntime", "onnxruntime-gpu", "openvino", "tensorrt", "cuda-bindings")
_QUERIES = 576  # rows held against the reference, which is slow
_REFERENCES = 4096

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What to measure; `auto` is the GPU's road, a name is that engine or scorer and no other."""

    bundle: Bundle
    product: str | None = None
    engine: str = "auto"
    scorer: str = "auto"
    runtime: Runtime = "python"
    frames: int = 200
    pictures: tuple[str, ...] = ()
    batch: int = 1
    force: bool = False
    settings: EngineSettings = field(default_factory=EngineSettings)


def measure_device(
    request: Request, tell: Tell = lambda _: None
) -> tuple[Report, list[AnocoError]]:
    """The report, and what failed on the way (said in the report too), worst first."""
    return _Measuring(request, tell).run()


def gpu_engine() -> str:
    """The engine of this machine's GPU; without one the error says why, and what to do."""
    from anoco_edge.engines import ort_gpu, tensorrt

    reasons = []
    for name in GPU_ENGINES:
        reason = tensorrt.why_not(name) if name in FLAVOURS else ort_gpu.why_not(name)
        if not reason:
            return name
        reasons.append(f"{name}: {reason}")
    raise EnvironmentMissingError(
        f"no engine runs on a GPU here ({reasons[0]})",
        hint="see anoco-edge doctor; --engine onnxruntime measures the processor instead",
    )


class _Measuring:
    """One report in the making."""

    def __init__(self, request: Request, tell: Tell) -> None:
        self._request, self._tell = request, tell
        self._bundle = request.bundle
        if request.engine == "auto":
            self._engine = gpu_engine()
        else:
            self._engine, _ = choose_engine(request.engine, request.bundle)
        self._on_gpu = self._engine in GPU_ENGINES
        self._scorer = self._choose_scorer(request.scorer)
        self._not_measured: list[str] = []
        self._problems: list[AnocoError] = []

    def run(self) -> tuple[Report, list[AnocoError]]:
        before = read_state()
        plan = self._attempt("building the plan", self._build) if self._planned() else None
        selftest = self._attempt("the self-test", self._selftest)
        agreement = self._attempt("scoring beside the reference", self._agreement)
        frames = self._attempt("frames", self._frames)
        self._say_what_is_missing()
        device = self._device()
        report = Report(
            created=now(),
            anoco_edge=__version__,
            device=device,
            simulated=bool(device.pop("simulated", False)),
            bundle=self._about_bundle(),
            engine=self._engine,
            scorer=self._scorer,
            runtime=self._request.runtime,
            plan=plan,
            selftest=selftest,
            agreement=tuple(agreement or ()),
            frames=frames,
            before=before,
            after=read_state(),
            not_measured=tuple(self._not_measured),
            problems=tuple(str(error) for error in self._problems),
        )
        return report, sorted(self._problems, key=lambda error: -error.exit_code)

    # ---- what is measured

    def _build(self) -> dict[str, Any]:
        from anoco_edge.plans.build import build_ahead

        request = self._request
        ahead = build_ahead(
            self._bundle, cast(Flavour, self._engine), batch=request.batch, force=request.force
        )
        record = ahead.record
        return {
            "engine": record.flavour,
            "version": record.fingerprint.version,
            "built_now": ahead.built,
            "seconds": record.seconds,
            "peak_memory_mb": record.peak_memory_mb,
            "size": record.size,
            "batch": record.max_batch,
        }

    def _selftest(self) -> dict[str, Any]:
        engine = open_engine(self._engine, self._bundle, self._request.settings)
        try:
            return asdict(check_engine(self._bundle, engine, force=True))
        finally:
            close = getattr(engine, "close", None)
            if close is not None:
                close()

    def _agreement(self) -> list[Agreement]:
        dim = self._bundle.manifest.input.dim
        query, references = clustered(Size(_QUERIES, _REFERENCES, dim))
        return [
            self._compare("made up", query.astype(kind), references.astype(kind))
            for kind in (np.float32, np.float16)
        ]

    def _compare(self, what: str, query: Floats, references: Floats) -> Agreement:
        bank, _ = References.of(references)
        oracle = open_scorer("reference", bank).score(query)
        found = open_scorer(self._scorer, bank).score(query)
        result = compare(found.energy, oracle, query)
        if result.disagree:
            self._problems.append(
                AnocoError(
                    f"scorer {self._scorer} disagrees with the reference on {result.disagree} of "
                    f"{len(query)} rows ({query.dtype})",
                    hint="do not inspect with it: use --scorer onnx, and send this report in",
                )
            )
        size = f"{len(query)}x{len(references)}x{query.shape[1]}"
        return Agreement(
            features=what,
            size=size,
            operands=str(query.dtype),
            undecided=result.undecided,
            disagree=result.disagree,
        )

    def _frames(self) -> dict[str, Any] | None:
        request = self._request
        if request.product is None and not self._bundle.products():
            self._not_measured.append(
                f"frames: {self._bundle.path.name} has no references; teach it with: anoco-edge "
                f"enroll {self._bundle.path} PICTURES"
            )
            return None
        detector = Detector(
            self._bundle,
            request.product,
            self._engine,
            self._scorer,
            runtime=request.runtime,
            settings=request.settings,
        )
        paths, what = bench_pictures(self._bundle, detector.product, request.pictures)
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            self._tell(f"frame {done} of {request.frames}")

        result = bench_frames(
            detector,
            paths,
            frames=request.frames,
            settings=request.settings,
            pictures_are=what,
            step=step,
        )
        return result.to_dict()

    # ---- what is known

    def _choose_scorer(self, name: str) -> str:
        if name != "auto":
            return choose_scorer(name)[0]
        return "cuda" if self._on_gpu else choose_scorer("auto")[0]

    def _planned(self) -> bool:
        return self._engine in FLAVOURS

    def _device(self) -> dict[str, Any]:
        gpu = _gpu() if self._on_gpu or self._scorer == "cuda" else {}
        known = gpu | system_facts() | machine()
        return known | {"system": platform.platform(), "versions": versions(_PACKAGES)}

    def _about_bundle(self) -> dict[str, Any]:
        manifest = self._bundle.manifest
        return {
            "name": self._bundle.name,
            "sha256": manifest.checksum,
            "backbone": manifest.backbone.id,
            "precision": manifest.backbone.precision,
            "random_weights": manifest.backbone.weights.random,
            "input": f"{manifest.input.width}x{manifest.input.height}",
        }

    def _say_what_is_missing(self) -> None:
        if not self._on_gpu:
            self._not_measured.append(f"the backbone on a GPU: {self._engine} uses none")
        if self._scorer != "cuda":
            self._not_measured.append(f"scoring on a GPU: {self._scorer} uses none")

    def _attempt(self, what: str, work: Callable[[], Any]) -> Any:
        self._tell(what)
        try:
            return work()
        except AnocoError as error:
            self._problems.append(error)
            self._not_measured.append(f"{what}: {error}")
            return None


def _gpu() -> dict[str, Any]:
    """The GPU as CUDA calls it."""
    from anoco_edge.scoring.cuda import describe

    found = describe()
    return {
        "gpu": found.name,
        "capability": f"sm{found.capability}",
        "cuda_driver": found.driver_version,
        "gpu_memory_mb": round(found.memory / 1e6),
        "device_code": found.code,
        "simulated": found.simulated,
    }
