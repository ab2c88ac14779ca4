"""Finds out what works on this machine, what does not and why, and which command helps.

Installed packages are looked up without importing them. Engines, scorers, execution providers and
cameras are really tried, because it says little that something is installed. Engines, scorers and
sources are those of the tables, so what another package adds is examined as well.
"""

from __future__ import annotations

import contextlib
import io
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from anoco_edge import __version__
from anoco_edge.diagnostics.cpu_precisions import precision_findings
from anoco_edge.diagnostics.findings import Finding, State, attempt, failed
from anoco_edge.engines import ENGINES, EngineSpec
from anoco_edge.engines.probe_graph import PROBE_GRAPH
from anoco_edge.errors import AnocoError, EnvironmentMissingError
from anoco_edge.machine import cache_folder, cores, cpu_model, package_version, total_memory_mb
from anoco_edge.plugins import Registry
from anoco_edge.plugins.registry import SpecT
from anoco_edge.scoring import SCORERS, ScorerSpec, score_patches
from anoco_edge.scoring.onnx_session import load_onnxruntime
from anoco_edge.sinks import SINKS, SinkSpec
from anoco_edge.sources import SOURCES, SourceSpec, cameras, open_source
from anoco_edge.sources.av_reader import load_av
from anoco_edge.sources.cv2_hints import missing_cv2_hint
from anoco_edge.sources.cv2_reader import load_cv2

if TYPE_CHECKING:
    from anoco_edge.plans.tensorrt_modules import PlanEngine

_CAMERA_SECONDS = 5.0


@dataclass(frozen=True)
class _Package:
    """A package: its import name, the distributions that install it, and what it is for."""

    module: str
    distributions: tuple[str, ...]
    why: str
    extra: str = ""
    needed: bool = True

    @property
    def help(self) -> str:
        """The command that installs it; empty if there is none."""
        if self.module == "cv2" and (hint := missing_cv2_hint()):
            return hint
        return f"pip install 'anoco-edge[{self.extra}]'" if self.extra else ""


_OPENCV = (
    "opencv-python-headless",
    "opencv-python",
    "opencv-contrib-python-headless",
    "opencv-contrib-python",
)
_BINDING = "not needed: TensorRT's memory is reached through the driver itself"
_PACKAGES = (
    _Package("numpy", ("numpy",), "the base"),
    _Package("PIL", ("pillow",), "the base"),
    _Package("onnxruntime", ("onnxruntime", "onnxruntime-gpu"), "to inspect", "cpu"),
    _Package("cv2", _OPENCV, "cameras", "camera"),
    _Package("av", ("av",), "videos and network streams", "video"),
    _Package("torch", ("torch",), "to export", "export", needed=False),
    _Package("timm", ("timm",), "to export", "export", needed=False),
    _Package("onnx", ("onnx",), "to export", "export", needed=False),
    _Package("ray", ("ray",), "many workers, on this machine or a cluster", "fleet", needed=False),
    _Package("faiss", ("faiss-cpu", "faiss-gpu"), "a rival in bench", "rivals", needed=False),
    _Package("tensorrt", ("tensorrt",), "comes with JetPack", needed=False),
    _Package("tensorrt_rtx", ("tensorrt-rtx-cu13",), "plans for RTX", "rtx", needed=False),
    _Package("openvino", ("openvino",), "Intel's engine", "openvino", needed=False),
    _Package("pycuda", ("pycuda",), _BINDING, needed=False),
    _Package("cuda", ("cuda-python", "cuda-bindings"), _BINDING, needed=False),
)


def examine(*, cameras: bool = True) -> list[Finding]:
    """Examine everything, group by group; `cameras` opens each camera for a moment.

    >>> examine(cameras=False)[0].name
    'processor'
    """
    findings = [*machine_findings(), *package_findings()]
    findings += [*engine_findings(), *precision_findings()]
    findings += [*builder_findings(), *provider_findings()]
    findings += [*scorer_findings(), *runtime_findings()]
    findings += [*source_findings(), *sink_findings(), *video_findings()]
    return [*findings, *camera_findings(try_them=cameras)]


def usable(findings: Sequence[Finding]) -> bool:
    """Whether parts can be inspected here, which takes one engine and one scorer that work.

    >>> usable([Finding("engines", "onnxruntime", "ok")])
    False
    """
    working = {finding.group for finding in findings if finding.state == "ok"}
    return {"engines", "scorers"} <= working


def machine_findings() -> Iterator[Finding]:
    """Examine the processor, the memory, Python and the folder of the cache."""
    group = "machine"
    yield Finding(group, "processor", "ok", f"{cpu_model()} ({platform.machine()})")
    yield Finding(group, "cores", "ok", f"{cores()} usable")
    yield Finding(group, "memory", "ok", f"{total_memory_mb() / 1000:.1f} GB")
    yield Finding(group, "python", "ok", f"{platform.python_version()} at {sys.prefix}")
    yield Finding(group, "anoco-edge", "ok", __version__)
    folder = cache_folder()
    nearest = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        yield Finding(group, "cache", "ok", f"{folder} can be written")
    else:
        yield Finding(
            group,
            "cache",
            "broken",
            f"{folder} cannot be written, so every start repeats the self-test",
            "set XDG_CACHE_HOME to a folder of yours",
        )


def package_findings(packages: Sequence[_Package] = _PACKAGES) -> Iterator[Finding]:
    """Look up which packages are installed, without importing them."""
    for package in packages:
        if find_spec(package.module) is None:
            state: State = "missing" if package.needed else "absent"
            yield Finding("packages", package.module, state, package.why, package.help)
            continue
        versions = (package_version(name) for name in package.distributions)
        version = next((v for v in versions if v), "version unknown (not from pip)")
        yield Finding("packages", package.module, "ok", version)


def engine_findings() -> Iterator[Finding]:
    """Try every engine of the table; those that need a GPU say why they cannot run."""
    for spec in ENGINES:
        yield _engine_finding(spec)
    yield from _broken_entries(ENGINES, "engines")


def _engine_finding(spec: EngineSpec) -> Finding:
    if spec.gpu and (reason := spec.why_not(spec.name)):
        return Finding("engines", spec.name, "absent", reason)
    found = attempt("engines", spec.name, spec.try_out)
    return _optional(found) if spec.optional else found


def builder_findings() -> Iterator[Finding]:
    """Try what builds plans; TensorRT-RTX needs no GPU for that."""
    from anoco_edge.plans.tensorrt_modules import PLAN_ENGINES

    for name in PLAN_ENGINES:
        yield _optional(attempt("builders", name, partial(_make_builder, name)))


def scorer_findings() -> Iterator[Finding]:
    """Try every scorer of the table with three patches, and compare with the reference."""
    for spec in SCORERS:
        yield _scorer_finding(spec)
    yield from _broken_entries(SCORERS, "scorers")


def _scorer_finding(spec: ScorerSpec) -> Finding:
    try:
        reason = spec.why_absent()
    except Exception:  # noqa: BLE001 (what is wrong shows when the scorer is tried)
        reason = ""
    if reason:
        return Finding("scorers", spec.name, "absent", reason)
    found = attempt("scorers", spec.name, partial(_score_three, spec))
    return _optional(found) if spec.optional else found


def _broken_entries(table: Registry[Any], group: str) -> Iterator[Finding]:
    """Report the entries of other packages that cannot be used at all."""
    for name, reason in table.broken.items():
        yield Finding(group, name, "broken", reason, "update or remove that package")


def runtime_findings() -> Iterator[Finding]:
    """Find out whether the native runtime can run: libanoco_edge, and the engine that it loads."""
    yield _optional(attempt("runtimes", "native", _load_native))


def provider_findings() -> Iterator[Finding]:
    """Try whether the execution providers that ONNX Runtime lists really start."""
    try:
        ort = load_onnxruntime()
    except EnvironmentMissingError:
        return  # packages and engines report that
    ort.set_default_logger_severity(4)  # our finding says what does not start
    for provider in ort.get_available_providers():
        yield attempt(
            "providers",
            provider,
            lambda provider=provider: _start(ort, provider),  # type: ignore[misc]
        )


def source_findings() -> Iterator[Finding]:
    """Look whether the packages that each source of the table needs are installed."""
    yield from _table_findings(SOURCES, "sources", _describe_source)


def _describe_source(spec: SourceSpec) -> str:
    return f"reads {spec.accepts or 'what it is made for'}"


def sink_findings() -> Iterator[Finding]:
    """Look whether the packages that each sink of the table needs are installed."""
    yield from _table_findings(SINKS, "sinks", _describe_sink)


def _describe_sink(spec: SinkSpec) -> str:
    return f"asked for as {spec.usage}"


def _table_findings(
    table: Registry[SpecT], group: str, describe: Callable[[SpecT], str]
) -> Iterator[Finding]:
    def look(spec: SpecT) -> str:
        if package := spec.missing_package():
            raise spec.missing_error(package)
        return describe(spec)

    for spec in table:
        yield attempt(group, spec.name, partial(look, spec))
    yield from _broken_entries(table, group)


def video_findings() -> Iterator[Finding]:
    """Look for PyAV and OpenCV, and whether that has GStreamer, which CSI cameras need."""
    try:
        av = load_av()
    except AnocoError as error:
        yield failed("video", "PyAV", error)
    else:
        yield Finding("video", "PyAV", "ok", f"{av.__version__}, FFmpeg {av.ffmpeg_version_info}")
    try:
        cv2 = load_cv2()
        gstreamer = cameras.has_gstreamer()
    except AnocoError as error:
        yield failed("video", "OpenCV", error)
        return
    yield Finding("video", "OpenCV", "ok", cv2.__version__)
    if gstreamer:
        yield Finding("video", "GStreamer", "ok", "OpenCV opens pipelines")
    else:
        yield Finding(
            "video",
            "GStreamer",
            "absent",
            "this OpenCV has none: USB and network cameras work, CSI cameras do not",
            "on a Jetson: pip uninstall opencv-python-headless, and use JetPack's own cv2",
        )


def camera_findings(
    devices: Sequence[str] | None = None, *, try_them: bool = True
) -> Iterator[Finding]:
    """List the cameras that Linux shows, and try which of them give a picture."""
    devices = cameras.camera_devices() if devices is None else devices
    if not devices:
        yield Finding(
            "cameras", "none", "absent", "there is no /dev/video*", "plug a camera in to use one"
        )
    for device in devices:
        if not try_them:
            yield Finding("cameras", device, "ok", "is there (not tried)")
            continue
        yield attempt("cameras", device, lambda device=device: _one_frame(device))  # type: ignore[misc]


def _one_frame(device: str) -> str:
    with open_source([], camera=device, limit=1, timeout=_CAMERA_SECONDS) as camera:
        for frame in camera:
            if frame.error is not None:
                raise frame.error
            height, width, _ = frame.shape or (0, 0, 0)
            return f"answers with {width}x{height}"
    raise EnvironmentMissingError(
        f"{device} gave no picture", hint="check its cable, and that no other program uses it"
    )


def _make_builder(plan_engine: PlanEngine) -> str:
    from anoco_edge.plans.device import current_device
    from anoco_edge.plans.tensorrt_modules import collecting_log, load_module, title

    trt = load_module(plan_engine)
    if not hasattr(trt, "Builder"):
        raise EnvironmentMissingError(
            f"this {title(plan_engine)} runs plans but does not build them",
            hint="install the full package, not the lean one",
        )
    where = "with no GPU too"
    if plan_engine == "tensorrt":
        where = f"for {current_device().name}"
    trt.Builder(collecting_log(trt))
    return f"{title(plan_engine)} {trt.__version__} builds plans {where}"


def _score_three(spec: ScorerSpec) -> str:
    patches = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], np.float32)
    scores = score_patches(patches, patches[:2], scorer=spec.name)
    wanted = score_patches(patches, patches[:2], scorer="reference")
    if not np.allclose(scores.energy, wanted.energy, rtol=1e-4, atol=1e-6):
        raise EnvironmentMissingError(
            f"energies {scores.energy.tolist()} instead of {wanted.energy.tolist()}",
            hint=f"install another version of what it needs: {spec.needs or spec.module}",
        )
    where = spec.function("describe_trial")
    return "scored three patches" if where is None else f"scored three patches {where()}"


def _load_native() -> str:
    from anoco_edge.pipeline.native import load_openvino, load_runtime

    library = load_runtime()
    version, kernels = (f().decode() for f in (library.anoco_version, library.anoco_kernels))
    engines, scorers = (
        " or ".join(spec.name for spec in table) for table in (ENGINES.native(), SCORERS.native())
    )
    stages = f"with engine {engines}, scorer {scorers}"
    return f"libanoco_edge {version} ({kernels}), {load_openvino()}; {stages}"


def _start(ort: Any, provider: str) -> str:
    # ONNX Runtime prints and warns when it takes another provider; our finding says that.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = _session(ort, provider).get_providers()
    if provider not in started:
        raise EnvironmentMissingError(
            "listed, but does not start",
            hint="install the driver and libraries it needs, or use another engine",
        )
    return "listed and starts"


def _session(ort: Any, provider: str) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(PROBE_GRAPH, options, providers=[provider])


def _optional(finding: Finding) -> Finding:
    """Call what need not be installed absent, not missing."""
    return replace(finding, state="absent") if finding.state == "missing" else finding
