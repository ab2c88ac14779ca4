"""The pipeline inside libanoco_edge, which takes pixels and fills in a whole Inspection."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.engines import ENGINES, EngineChoice, EngineSettings
from anoco_edge.engines.cpu_precision import PrecisionChoice, mismatch
from anoco_edge.engines.selftest import SelfTest
from anoco_edge.errors import AnocoError, BundleError, EnvironmentMissingError, UsageError
from anoco_edge.images.frame import Frame
from anoco_edge.images.preprocess import Placement
from anoco_edge.machine import cores, is_jetson
from anoco_edge.native import interface
from anoco_edge.native.handles import (
    Handle,
    WarningLog,
    create_context,
    open_bundle,
    open_detector,
)
from anoco_edge.native.library import VARIABLE, check, find_library, load_library
from anoco_edge.pipeline.base import (
    PipelineChoices,
    ProductSnapshot,
    StageChoices,
    precision_name,
)
from anoco_edge.pipeline.inspection import Inspection, Timings
from anoco_edge.pipeline.regions import FoundRegion
from anoco_edge.plugins import Choice, StageSpec
from anoco_edge.scoring import SCORERS, ScorerChoice

OPENVINO_VARIABLE = "ANOCO_OPENVINO_LIBRARY"
TENSORRT_VARIABLE = "ANOCO_TENSORRT_LIBRARY"


def choose_parts(
    engine: str = "auto",
    scorer: str = "auto",
    bundle: Bundle | None = None,
    settings: EngineSettings | None = None,
) -> StageChoices:
    """Choose what the library runs, out of the engines and scorers that it has (`native`).

    With a bundle, `auto` prefers a plan of it that runs on this machine's GPU.

    >>> choose_parts(scorer="cuda")["scorer"]
    ScorerChoice(name='cuda', reason='asked for')
    """
    planned = None
    if engine == "auto" and bundle is not None and not _asks_for_processor(settings):
        planned = _choose_plan(bundle)
    first = EngineChoice(*(planned or _choose("engine", engine, ENGINES.native())))
    # The first choice scores features on the device that computed them, which costs least.
    gpu = ENGINES.get(first.name).gpu
    scorers = sorted(SCORERS.native(), key=lambda spec: spec.gpu != gpu)
    return {"engine": first, "scorer": ScorerChoice(*_choose("scorer", scorer, scorers))}


def _asks_for_processor(settings: EngineSettings | None) -> bool:
    """Whether a device or a precision was asked for that only an engine without a plan has."""
    default, asked = EngineSettings(), settings or EngineSettings()
    return (asked.device, asked.cpu_precision) != (default.device, default.cpu_precision)


def _choose_plan(bundle: Bundle) -> Choice | None:
    """Choose the engine of a plan that runs here; on a Jetson also before there is one.

    A Jetson's processor takes minutes for what its GPU does in milliseconds, so there the error of
    a missing plan helps more than a slow answer.
    """
    for spec in sorted(ENGINES.native(), key=lambda spec: spec.rank):
        if not spec.needs_plan:
            continue
        if reason := spec.reason_for_auto(bundle):
            return Choice(spec.name, reason)
        if is_jetson():
            return Choice(spec.name, "this is a Jetson, whose GPU runs plans (anoco-edge build)")
    return None


def _choose(stage: str, asked: str, known: Sequence[StageSpec]) -> Choice:
    names = [spec.name for spec in known]
    if asked == "auto":
        return Choice(names[0], "the native runtime's first choice")
    if asked not in names:
        raise UsageError(
            f"{stage} {asked!r} was asked for, the native runtime has {' and '.join(names)} alone",
            hint=f"leave `{stage}` out, or use `runtime='python'`",
        )
    return Choice(asked, "asked for")


def find_openvino() -> Path | None:
    """Find OpenVINO's C library in its Python package, without importing that package.

    None lets the native library look where the environment variable points, or in the system.
    """
    if os.environ.get(OPENVINO_VARIABLE):
        return None
    package = find_spec("openvino")
    for place in (package and package.submodule_search_locations) or ():
        for library in sorted(Path(place).glob("libs/libopenvino_c.so*")):
            return library
    return None


def find_tensorrt() -> Path | None:
    """Find the folder where pip put TensorRT's libraries.

    None lets the native library look where the environment variable points, or in the system,
    where JetPack installs them.
    """
    if os.environ.get(TENSORRT_VARIABLE):
        return None
    package = find_spec("tensorrt_libs")
    places = (package and package.submodule_search_locations) or ()
    return next((Path(place) for place in places), None)


def load_runtime() -> ctypes.CDLL:
    """Load the native library, or raise an error if it is too old to inspect pictures."""
    library = load_library()
    if not hasattr(library, "anoco_inspect"):
        raise EnvironmentMissingError(
            f"the native library {find_library()} has scorers only: it is older than this package",
            hint=f"build it again, or correct {VARIABLE}",
        )
    return library


def load_openvino() -> str:
    """Return the version of the OpenVINO that the native library would run the backbone with.

    It raises `EnvironmentMissingError` where OpenVINO's C library cannot be loaded.
    """
    named = os.environ.get(OPENVINO_VARIABLE, "libopenvino_c.so")
    try:
        engine = ctypes.CDLL(str(find_openvino() or named))
        version = _OpenVinoVersion()
        engine.ov_get_openvino_version(ctypes.byref(version))
    except (OSError, AttributeError) as error:
        raise EnvironmentMissingError(
            f"OpenVINO's C library is not installed: {error}",
            hint=f"pip install 'anoco-edge[openvino]', or set {OPENVINO_VARIABLE}",
        ) from None
    return f"OpenVINO {version.build.decode()}"


class _OpenVinoVersion(ctypes.Structure):
    _fields_ = (("build", ctypes.c_char_p), ("description", ctypes.c_char_p))


class NativePipeline:
    """Inspects with one native detector.

    It keeps as many contexts as there have ever been threads that inspected at the same time.
    """

    def __init__(
        self, snapshot: ProductSnapshot, engine: str, scorer: str, settings: EngineSettings
    ) -> None:
        parts = choose_parts(engine, scorer, snapshot.bundle, settings)
        self.selftest: SelfTest | None = None
        self._snapshot = snapshot
        self._library = load_runtime()
        self._threads = settings.threads or cores()
        self._log = WarningLog()
        self._detector = _open_detector(self._library, snapshot, settings, parts, self._log)
        self._warnings_at_open = len(self._log.warnings)
        precision = _read_precision(self._library, self._detector)
        self.choices: PipelineChoices = {**parts, "cpu_precision": precision}
        references = snapshot.product.references
        self._size = (max(r.width for r in references), max(r.height for r in references))
        self._idle = [self._new_context()]

    @property
    def remarks(self) -> tuple[str, ...]:
        """The warnings that the library has logged since its detector was opened.

        These concern the engine, which is prepared when a context is created. Earlier warnings
        concern the product, and Python gives those itself.
        """
        chosen = self.choices["cpu_precision"]
        name, why = chosen or (None, f"by {self.choices['engine'].name}")
        own = mismatch(self._snapshot.product, name, why)
        said = dict.fromkeys(self._log.warnings[self._warnings_at_open :])
        return (own, *said) if own else tuple(said)

    def inspect(self, frames: Sequence[Frame]) -> list[Inspection | AnocoError]:
        """Inspect one frame after the other, because a batch gains nothing on a CPU."""
        return [self._outcome(frame) for frame in frames]

    def _outcome(self, frame: Frame) -> Inspection | AnocoError:
        height, width, _ = frame.pixels.shape
        try:
            with self._context(width, height) as context:
                return context.inspect(frame, self._snapshot, precision_name(self.choices))
        except AnocoError as error:
            return error

    @contextmanager
    def _context(self, width: int, height: int) -> Iterator[_Context]:
        """Lend a context that no thread uses and that is large enough.

        Appending to a list and popping from it are atomic, so no lock is needed.
        """
        try:
            context = self._idle.pop()
        except IndexError:
            context = None
        if context is None or width > context.width or height > context.height:
            self._size = (max(width, self._size[0]), max(height, self._size[1]))
            context = self._new_context()
        try:
            yield context
        finally:
            self._idle.append(context)

    def _new_context(self) -> _Context:
        return _Context(self._library, self._detector, self._threads, *self._size)


def _open_detector(
    library: ctypes.CDLL,
    snapshot: ProductSnapshot,
    settings: EngineSettings,
    choices: StageChoices,
    log: WarningLog,
) -> Handle:
    engine, scorer = ENGINES.get(choices["engine"].name), SCORERS.get(choices["scorer"].name)
    engine.check_device(settings)
    bundle = open_bundle(library, snapshot.bundle.path)
    theirs = find_openvino() if engine.native == "openvino" else find_tensorrt()
    options = interface.DetectorOptions(
        threads=settings.threads,
        product=snapshot.product.name.encode(),
        backend=engine.native.encode(),
        device=settings.device.encode() if engine.devices else None,
        library=theirs and os.fsencode(theirs),
        threshold=(snapshot.threshold or 0) if snapshot.threshold_kind == "manual" else 0,
        allow_random=1,  # Detector.open has already refused random weights, unless they are allowed
        scorer=scorer.native.encode(),
        log=log.function,
        cpu_precision=settings.cpu_precision.encode(),
        blocking_sync=settings.blocking_sync and (engine.gpu or scorer.gpu),
    )
    return open_detector(library, bundle, options, log)


def _read_precision(library: ctypes.CDLL, detector: Handle) -> PrecisionChoice | None:
    """Ask the library in which precision its detector computes on the processor, and why."""
    found = interface.DetectorInfo()
    check(library, library.anoco_detector_describe(detector.value, found))
    if not found.cpu_precision:
        return None
    return PrecisionChoice(found.cpu_precision.decode(), found.cpu_precision_reason.decode())


class _Context:
    """A context of the native library and its buffers, which inspects one picture at a time."""

    def __init__(
        self, library: ctypes.CDLL, detector: Handle, threads: int, width: int, height: int
    ) -> None:
        self.width, self.height = width, height
        self._library = library
        options = interface.ContextOptions(threads=threads, max_width=width, max_height=height)
        self._handle = create_context(library, detector, options)

    def inspect(
        self, frame: Frame, snapshot: ProductSnapshot, precision: str | None = None
    ) -> Inspection:
        """Inspect a frame and copy the result, which the next frame overwrites in the context."""
        height, width, _ = frame.pixels.shape
        data = frame.pixels.ctypes.data
        image = interface.Image(format=interface.RGB, data=data, width=width, height=height)
        found = interface.Result()
        check(self._library, self._library.anoco_inspect(self._handle.value, image, found))
        _check_generation(found, snapshot)
        grid, canvas = (found.rows, found.cols), (found.map_height, found.map_width)
        over = snapshot.threshold is not None and found.score > snapshot.threshold
        return Inspection(
            source=frame.source,
            product=snapshot.product.name,
            generation=found.generation,
            score=found.score,
            threshold=snapshot.threshold,
            threshold_kind=snapshot.threshold_kind,
            energy=_copy(found.energy, grid),
            scored=_copy(found.counted, grid).astype(np.bool_),
            regions=tuple(self._region(k) for k in range(found.region_count)),
            timings=self._timings(frame.decode_ms),
            placement=Placement(
                width,
                height,
                found.picture_left,
                found.picture_top,
                found.picture_width,
                found.picture_height,
            ),
            input_map=_copy(found.map, canvas),
            outline=_copy(found.outline, canvas).astype(np.bool_) if over else None,
            anchor=_copy(found.anchor, grid),
            similarity=_copy(found.similarity, grid),
            evidence_lookup=snapshot.evidence_lookup,
            cpu_precision=precision,
        )

    def _region(self, number: int) -> FoundRegion:
        it = interface.Region()
        status = self._library.anoco_result_region(self._handle.value, number, it)
        check(self._library, status)
        return FoundRegion((it.x0, it.y0, it.x1, it.y1), it.area, it.peak, it.row, it.col)

    def _timings(self, decode: float) -> Timings:
        it = interface.Timings()
        check(self._library, self._library.anoco_result_timings(self._handle.value, it))
        return {
            "decode": decode,
            "preprocess": it.preprocess,
            "backbone": it.backbone,
            "scoring": it.scoring,
            "map": it.map,
            "total": decode + it.total,
        }


def _check_generation(found: interface.Result, snapshot: ProductSnapshot) -> None:
    if found.generation != snapshot.product.generation:
        raise BundleError(
            f"product {snapshot.product.name!r} became generation {found.generation} while "
            f"generation {snapshot.product.generation} was opened",
            hint="open the detector again",
        )


def _copy(pointer: Any, shape: tuple[int, int]) -> NDArray[Any]:
    return np.ctypeslib.as_array(pointer, shape).copy()
