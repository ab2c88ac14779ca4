"""What works on this machine, what does not, why, and the command that helps.

Installed packages are looked up without importing them; engines, scorers, execution providers
and cameras are really tried, because being installed says little.
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
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from anoco_edge import __version__
from anoco_edge.engines import ENGINES
from anoco_edge.errors import AnocoError, EnvironmentMissingError, missing
from anoco_edge.machine import cache_folder, cores, cpu_model, package_version, total_memory_mb
from anoco_edge.scoring import SCORERS, score_patches
from anoco_edge.scoring.onnx_scorer import scoring_model
from anoco_edge.sources import stream
from anoco_edge.sources.av_reader import load_av
from anoco_edge.sources.cv2_reader import load_cv2

if TYPE_CHECKING:
    from anoco_edge.plans.tensorrt_modules import Flavour

State = Literal["ok", "missing", "broken", "absent"]
_CAMERA_SECONDS = 5.0


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    `missing` can be installed, `broken` is there and fails, `absent` is not there and need not be.
    """

    group: str
    name: str
    state: State
    detail: str = ""
    help: str = ""


@dataclass(frozen=True)
class _Package:
    """Import name, names of distributions that bring it, and what it is for."""

    module: str
    distributions: tuple[str, ...]
    why: str
    extra: str = ""
    needed: bool = True

    @property
    def help(self) -> str:
        return f"pip install 'anoco-edge[{self.extra}]'" if self.extra else ""


_OPENCV = (
    "opencv-python-headless",
    "opencv-python",
    "opencv-contrib-python-headless",
    "opencv-contrib-python",
)
_PACKAGES = (
    _Package("numpy", ("numpy",), "the base"),
    _Package("PIL", ("pillow",), "the base"),
    _Package("onnxruntime", ("onnxruntime", "onnxruntime-gpu"), "to inspect", "cpu"),
    _Package("cv2", _OPENCV, "cameras", "camera"),
    _Package("av", ("av",), "videos and network streams", "video"),
    _Package("torch", ("torch",), "to export", "export", needed=False),
    _Package("timm", ("timm",), "to export", "export", needed=False),
    _Package("onnx", ("onnx",), "to export", "export", needed=False),
    _Package("ray", ("ray",), "many workers: infer --on, eval --on", "fleet", needed=False),
    _Package("faiss", ("faiss-cpu", "faiss-gpu"), "a rival in bench", "rivals", needed=False),
    _Package("tensorrt", ("tensorrt",), "comes with JetPack", needed=False),
    _Package("tensorrt_rtx", ("tensorrt-rtx-cu13",), "plans for RTX", "rtx", needed=False),
    _Package("openvino", ("openvino",), "Intel's engine", "openvino", needed=False),
    _Package("pycuda", ("pycuda",), "for TensorRT, if cuda is not there", needed=False),
    _Package("cuda", ("cuda-python", "cuda-bindings"), "for TensorRT", "tensorrt", needed=False),
)


def examine(*, cameras: bool = True) -> list[Finding]:
    """Every finding, group by group; `cameras` opens each one for a moment.

    >>> examine(cameras=False)[0].name
    'processor'
    """
    findings = [*machine_findings(), *package_findings()]
    findings += [*engine_findings(), *builder_findings(), *provider_findings()]
    findings += [*scorer_findings(), *runtime_findings()]
    return [*findings, *video_findings(), *camera_findings(try_them=cameras)]


def usable(findings: Sequence[Finding]) -> bool:
    """Whether parts can be inspected here: one engine and one scorer work.

    >>> usable([Finding("engines", "onnxruntime", "ok")])
    False
    """
    working = {finding.group for finding in findings if finding.state == "ok"}
    return {"engines", "scorers"} <= working


def machine_findings() -> Iterator[Finding]:
    """Processor, memory, Python, and the place for results bound to this machine."""
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
    """What is installed, found without importing it."""
    for package in packages:
        if find_spec(package.module) is None:
            state: State = "missing" if package.needed else "absent"
            yield Finding("packages", package.module, state, package.why, package.help)
            continue
        versions = (package_version(name) for name in package.distributions)
        version = next((v for v in versions if v), "version unknown (not from pip)")
        yield Finding("packages", package.module, "ok", version)


def engine_findings() -> Iterator[Finding]:
    """Engines, tried with a small graph; those that run plans say why they cannot."""
    from anoco_edge.engines import ort_gpu
    from anoco_edge.engines.tensorrt import why_not

    for name in ENGINES:
        if name == "onnxruntime":
            yield _try("engines", name, _run_small_graph)
        elif name == "openvino":
            yield _optional(_try("engines", name, _run_openvino))
        elif name in ort_gpu.NAMES:
            reason = ort_gpu.why_not(name)
            yield Finding("engines", name, "absent" if reason else "ok", reason or "starts")
        elif reason := why_not(name):
            yield Finding("engines", name, "absent", reason)
        else:
            yield Finding("engines", name, "ok", "runs plans, made with: anoco-edge build BUNDLE")


def builder_findings() -> Iterator[Finding]:
    """What can build plans here; TensorRT-RTX needs no GPU for that."""
    from anoco_edge.plans.tensorrt_modules import FLAVOURS

    for name in FLAVOURS:
        yield _optional(_try("builders", name, partial(_make_builder, name)))


def scorer_findings() -> Iterator[Finding]:
    """Scorers, each tried with three patches and held against what they must give."""
    for name in SCORERS:
        reason = _no_cuda() if name == "cuda" else None
        if reason is not None:
            yield Finding("scorers", name, "absent", reason)
            continue
        found = _try("scorers", name, partial(_score_three, name))
        yield _optional(found) if name in ("native", "cuda") else found


def runtime_findings() -> Iterator[Finding]:
    """Whether `--runtime native` can run: libanoco_edge, and the engine it loads."""
    yield _optional(_try("runtimes", "native", _load_native))


def provider_findings() -> Iterator[Finding]:
    """Execution providers that ONNX Runtime lists, and whether they really start."""
    try:
        ort = _onnxruntime()
    except EnvironmentMissingError:
        return  # said among the packages and engines
    ort.set_default_logger_severity(4)  # we say in our own words what does not start
    for provider in ort.get_available_providers():
        yield _try(
            "providers",
            provider,
            lambda provider=provider: _start(ort, provider),  # type: ignore[misc]
        )


def video_findings() -> Iterator[Finding]:
    """PyAV, OpenCV, and whether that has GStreamer (which CSI cameras need)."""
    try:
        av = load_av()
    except AnocoError as error:
        yield _failed("video", "PyAV", error)
    else:
        yield Finding("video", "PyAV", "ok", f"{av.__version__}, FFmpeg {av.ffmpeg_version_info}")
    try:
        cv2 = load_cv2()
        gstreamer = stream.has_gstreamer()
    except AnocoError as error:
        yield _failed("video", "OpenCV", error)
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
    """Cameras that Linux shows, and which of them give a picture."""
    devices = stream.camera_devices() if devices is None else devices
    if not devices:
        yield Finding(
            "cameras", "none", "absent", "there is no /dev/video*", "plug a camera in to use one"
        )
    for device in devices:
        if not try_them:
            yield Finding("cameras", device, "ok", "is there (not tried)")
            continue
        yield _try("cameras", device, lambda device=device: _one_frame(device))  # type: ignore[misc]


def _one_frame(device: str) -> str:
    with stream.open_camera(device, limit=1, timeout=_CAMERA_SECONDS) as camera:
        for frame in camera:
            if frame.error is not None:
                raise frame.error
            height, width, _ = frame.shape or (0, 0, 0)
            return f"answers with {width}x{height}"
    raise EnvironmentMissingError(f"{device} gave no picture", hint="check its cable")


def _run_small_graph() -> str:
    ort = _onnxruntime()
    session = _session(ort, "CPUExecutionProvider")
    (anchor,) = session.run(["anchor"], _small_feeds())
    _check_anchor("ONNX Runtime", anchor)
    return f"ONNX Runtime {ort.__version__} ran a graph on the processor"


def _run_openvino() -> str:
    from anoco_edge.engines.openvino import found_devices, load_core, options

    core = load_core()
    model = core.compile_model(core.read_model(scoring_model()), "CPU", options("CPU"))
    _check_anchor("OpenVINO", model(_small_feeds())["anchor"])
    names = [f"{d} ({core.get_property(d, 'FULL_DEVICE_NAME')})" for d in found_devices(core)]
    return f"OpenVINO {package_version('openvino')} ran a graph; devices: {', '.join(names)}"


def _small_feeds() -> dict[str, np.ndarray]:
    return {
        "query": np.array([[2.0, 0.0]], np.float32),
        "reference_units": np.array([[0.0, 1.0], [1.0, 0.0]], np.float32),
        "reference_norms": np.ones(2, np.float32),
        "lambda": np.array(1.0, np.float32),
        "floor": np.array(0.05, np.float32),
    }


def _check_anchor(what: str, anchor: np.ndarray) -> None:
    if anchor.tolist() != [1]:
        raise EnvironmentMissingError(
            f"{what} computes nonsense here", hint="install another version of it"
        )


def _make_builder(flavour: Flavour) -> str:
    from anoco_edge.plans.device import current_device
    from anoco_edge.plans.tensorrt_modules import collecting_log, load_module, title

    trt = load_module(flavour)
    if not hasattr(trt, "Builder"):
        raise EnvironmentMissingError(
            f"this {title(flavour)} runs plans but does not build them",
            hint="install the full package, not the lean one",
        )
    where = "with no GPU too"
    if flavour == "tensorrt":
        where = f"for {current_device().name}"
    trt.Builder(collecting_log(trt))
    return f"{title(flavour)} {trt.__version__} builds plans {where}"


def _no_cuda() -> str | None:
    """Why there is nothing to try the cuda scorer with; None where there is a device."""
    from anoco_edge.native.library import why_not
    from anoco_edge.scoring.cuda import describe

    if why_not() is not None:
        return None  # without the library it says that itself
    there = describe()
    return None if there.driver_version or there.usable else there.why_not


def _score_three(scorer: str) -> str:
    patches = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], np.float32)
    scores = score_patches(patches, patches[:2], scorer=scorer)
    wanted = score_patches(patches, patches[:2], scorer="reference")
    if not np.allclose(scores.energy, wanted.energy, rtol=1e-4, atol=1e-6):
        raise EnvironmentMissingError(
            f"energies {scores.energy.tolist()} instead of {wanted.energy.tolist()}",
            hint="install another version of onnxruntime",
        )
    if scorer != "cuda":
        return "scored three patches"
    from anoco_edge.scoring.cuda import describe

    there = describe()
    return f"scored three patches on {there.name}, with code {there.code}"


def _load_native() -> str:
    from anoco_edge.pipeline.native import load_openvino, load_runtime

    library = load_runtime()
    version, kernels = (f().decode() for f in (library.anoco_version, library.anoco_kernels))
    return f"libanoco_edge {version} ({kernels}), {load_openvino()}"


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "onnxruntime":
            raise missing("onnxruntime", "cpu", "to run the backbone") from None
        raise EnvironmentMissingError(
            f"onnxruntime is installed but does not load: {error}",
            hint="install it again with: pip install --force-reinstall 'anoco-edge[cpu]'",
        ) from None
    return onnxruntime


def _start(ort: Any, provider: str) -> str:
    # A fallback is announced by print and by a warning; we say it in our own words.
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
    return ort.InferenceSession(scoring_model(), options, providers=[provider])


def _try(group: str, name: str, trial: Callable[[], str]) -> Finding:
    try:
        return Finding(group, name, "ok", trial())
    except AnocoError as error:
        return _failed(group, name, error)
    except Exception as error:  # noqa: BLE001 (a trial may fail in any way: that is the finding)
        return Finding(group, name, "broken", _one_line(error))


def _optional(finding: Finding) -> Finding:
    """What need not be installed is not missing."""
    return replace(finding, state="absent") if finding.state == "missing" else finding


def _failed(group: str, name: str, error: AnocoError) -> Finding:
    state: State = "missing" if "is not installed" in error.what else "broken"
    return Finding(group, name, state, error.what, error.hint.removeprefix("install it with: "))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
