"""Keeps old import paths working for one version; each use warns and names the new path.

`MODULES` lists modules that moved. `NAMES` lists what was renamed inside a module, whether the
module moved or not. One finder on sys.meta_path serves both tables, so nothing else in the package
knows of old names. Remove an entry in the version after the one in which it was added.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # importing it takes 9 ms, half of what `import anoco_edge` may take
    from importlib.abc import Loader

# These moved in 0.2. The entry of a package also covers the modules inside it.
MODULES = {
    "anoco_edge.bench": "anoco_edge.diagnostics.bench",
    "anoco_edge.bench.rivals": "anoco_edge.diagnostics.bench.baselines",
    "anoco_edge.bundle.disk": "anoco_edge.storage.atomic_files",
    "anoco_edge.canvas": "anoco_edge.pipeline.tiling",
    "anoco_edge.conformal": "anoco_edge.scoring.conformal",
    "anoco_edge.coreset": "anoco_edge.teaching.coreset",
    "anoco_edge.device_array": "anoco_edge.scoring.device_array",
    "anoco_edge.device_report": "anoco_edge.diagnostics.device_report",
    "anoco_edge.doctor": "anoco_edge.diagnostics.doctor",
    "anoco_edge.drawing": "anoco_edge.reporting",
    "anoco_edge.energy": "anoco_edge.pipeline.energy",
    "anoco_edge.engines.launching": "anoco_edge.engines.cuda_graphs",
    "anoco_edge.geometry": "anoco_edge.pipeline.patch_mask",
    "anoco_edge.inspection": "anoco_edge.pipeline.inspection",
    "anoco_edge.jpeg_check": "anoco_edge.images.jpeg_check",
    "anoco_edge.judgement": "anoco_edge.pipeline.postprocess",
    "anoco_edge.maps": "anoco_edge.pipeline.anomaly_map",
    "anoco_edge.native.road": "anoco_edge.pipeline.native",
    "anoco_edge.onnx_session": "anoco_edge.scoring.onnx_session",
    "anoco_edge.pictures": "anoco_edge.images.decode",
    "anoco_edge.plain_text": "anoco_edge.text.plain_text",
    "anoco_edge.plans.ahead": "anoco_edge.plans.build",
    "anoco_edge.plans.builder": "anoco_edge.plans.tensorrt_builder",
    "anoco_edge.plans.flavours": "anoco_edge.plans.tensorrt_modules",
    "anoco_edge.preprocess": "anoco_edge.images.preprocess",
    "anoco_edge.regions": "anoco_edge.pipeline.regions",
    "anoco_edge.regular_file": "anoco_edge.storage.regular_file",
    "anoco_edge.report": "anoco_edge.results.report_page",
    "anoco_edge.report.page": "anoco_edge.results.report_page",
    "anoco_edge.results.folder": "anoco_edge.sinks.folder",
    "anoco_edge.results.lines": "anoco_edge.results.atomic_lines",
    "anoco_edge.results.run": "anoco_edge.results.runner",
    "anoco_edge.road": "anoco_edge.pipeline.base",
    "anoco_edge.selftest": "anoco_edge.engines.selftest",
    "anoco_edge.service_manager": "anoco_edge.sinks.service_manager",
    "anoco_edge.sources.address": "anoco_edge.text.address",
    "anoco_edge.sources.closing": "anoco_edge.sources.base",
    "anoco_edge.sources.stream": "anoco_edge.sources.live",
    "anoco_edge.teaching.banks": "anoco_edge.teaching.bank_builder",
    "anoco_edge.teaching.examiner": "anoco_edge.teaching.draft_scorer",
    "anoco_edge.teaching.held_out": "anoco_edge.teaching.calibration_set",
    "anoco_edge.teaching.pictures": "anoco_edge.teaching.new_pictures",
    "anoco_edge.teaching.thresholds": "anoco_edge.teaching.calibrated_threshold",
    "anoco_edge.threshold": "anoco_edge.teaching.provisional_threshold",
    "anoco_edge.tiff_check": "anoco_edge.images.tiff_check",
    "anoco_edge.views": "anoco_edge.pipeline.augmentation",
    "anoco_edge.witness": "anoco_edge.pipeline.evidence",
    "anoco_edge_calibration.calibration_report": "anoco_edge_calibration.thresholds.calibration_report",  # noqa: E501
    "anoco_edge_calibration.charts": "anoco_edge.reporting.charts",
    "anoco_edge_calibration.dataset": "anoco_edge_calibration.evaluation.dataset",
    "anoco_edge_calibration.eval_report": "anoco_edge_calibration.evaluation.eval_report",
    "anoco_edge_calibration.feature_cache": "anoco_edge_calibration.evaluation.feature_cache",
    "anoco_edge_calibration.gallery": "anoco_edge_calibration.evaluation.gallery",
    "anoco_edge_calibration.layouts": "anoco_edge_calibration.evaluation.layouts",
    "anoco_edge_calibration.measuring": "anoco_edge_calibration.evaluation.unit",
    "anoco_edge_calibration.metrics": "anoco_edge_calibration.evaluation.metrics",
    "anoco_edge_calibration.paper": "anoco_edge_calibration.evaluation.paper",
    "anoco_edge_calibration.parcels": "anoco_edge_calibration.evaluation.serialization",
    "anoco_edge_calibration.pixel_metrics": "anoco_edge_calibration.evaluation.pixel_metrics",
    "anoco_edge_calibration.ranges": "anoco_edge_calibration.int8.ranges",
    "anoco_edge_calibration.scorers": "anoco_edge_calibration.evaluation.scorers",
    "anoco_edge_calibration.scorers.near": "anoco_edge_calibration.evaluation.scorers.neighbor_cache",  # noqa: E501
    "anoco_edge_calibration.tables": "anoco_edge_calibration.evaluation.tables",
    "anoco_edge_calibration.tradeoff": "anoco_edge_calibration.thresholds.tradeoff",
    "anoco_edge_calibration.variants": "anoco_edge_calibration.evaluation.variants",
    "anoco_edge_export.expected": "anoco_edge_export.torch_reference",
    "anoco_edge_export.half": "anoco_edge_export.fp16",
    "anoco_edge_export.heavy": "anoco_edge_export.lazy_import",
    "anoco_edge_export.islands": "anoco_edge_export.fp32_islands",
    "anoco_edge_export.pictures": "anoco_edge_export.synthetic",
    "anoco_edge_export.quantise": "anoco_edge_export.qdq",
    "anoco_edge_export.rounding": "anoco_edge_export.fp16_emulation",
    "anoco_edge_export.state_file": "anoco_edge_export.checkpoint",
}
# The keys are the old names of modules; each table maps an old name to where it is now.
NAMES = {
    "anoco_edge.bench": {
        "Summary": "anoco_edge.diagnostics.bench.statistics:LatencySummary",
        "summarise": "anoco_edge.diagnostics.bench.statistics:summarize",
    },
    "anoco_edge.bench.features": {
        "MADE_UP": "anoco_edge.diagnostics.bench.features:SYNTHETIC",
        "Source": "anoco_edge.diagnostics.bench.features:FeatureSource",
    },
    "anoco_edge.bench.statistics": {
        "Summary": "anoco_edge.diagnostics.bench.statistics:LatencySummary",
        "summarise": "anoco_edge.diagnostics.bench.statistics:summarize",
    },
    "anoco_edge.bench.tables": {
        "scoring_matches": "anoco_edge.diagnostics.bench.tables:scoring_tables",
    },
    "anoco_edge.bundle.checksum": {
        "sha256_file": "anoco_edge.storage.hashes:sha256_file",
        "sha256_stream": "anoco_edge.storage.hashes:sha256_stream",
    },
    "anoco_edge.bundle.disk": {
        "LOCK": "anoco_edge.storage.locks:LOCK",
        "TEMPORARY": "anoco_edge.storage.beneath:TEMPORARY",
        "locked": "anoco_edge.storage.locks:locked",
    },
    "anoco_edge.bundle.schema": {
        name: f"anoco_edge.images.contract:{name}"
        for name in ("Fit", "MOST_LENGTH", "MOST_PATCHES", "MOST_PIXELS", "MOST_TILES")
    },
    "anoco_edge.canvas": {"Canvas": "anoco_edge.pipeline.tiling:Tiling"},
    "anoco_edge.coreset": {"Chosen": "anoco_edge.teaching.coreset:CoresetSelection"},
    "anoco_edge.detector": {"Opening": "anoco_edge.detector:DetectorConfig"},
    "anoco_edge.device_report": {
        "Report": "anoco_edge.diagnostics.device_report.report:DeviceReport",
        "Request": "anoco_edge.diagnostics.device_report.measurements:ReportRequest",
        "read_report": "anoco_edge.diagnostics.device_report.report:read_device_report",
        "write_report": "anoco_edge.diagnostics.device_report.report:write_device_report",
    },
    "anoco_edge.engines": {
        name: f"anoco_edge.engines.base:{name}"
        for name in ("check_features", "check_shape", "engine_failed")
    },
    "anoco_edge.engines.launching": {
        "Launches": "anoco_edge.engines.cuda_graphs:GraphLauncher",
        "MOST_SIZES": "anoco_edge.engines.cuda_graphs:MAX_GRAPHS",
    },
    "anoco_edge.energy": {"Seen": "anoco_edge.pipeline.energy:PatchFeatures"},
    "anoco_edge.geometry": {"Geometry": "anoco_edge.pipeline.patch_mask:PatchMask"},
    "anoco_edge.inspection": {"Witness": "anoco_edge.pipeline.inspection:EvidenceSource"},
    "anoco_edge.judgement": {
        "Judged": "anoco_edge.pipeline.postprocess:PostProcessOutput",
        "Judgement": "anoco_edge.pipeline.postprocess:PostProcessor",
    },
    "anoco_edge.native.road": {"NativeRoad": "anoco_edge.pipeline.native:NativePipeline"},
    "anoco_edge.plans.ahead": {
        "Ahead": "anoco_edge.plans.build:BuildOutcome",
        "build_ahead": "anoco_edge.plans.build:build_bundle_plan",
        "default_flavour": "anoco_edge.plans.build:default_plan_engine",
    },
    "anoco_edge.plans.builder": {"refusal": "anoco_edge.plans.tensorrt_builder:plan_error"},
    "anoco_edge.plans.flavours": {
        "FLAVOURS": "anoco_edge.plans.tensorrt_modules:PLAN_ENGINES",
        "Flavour": "anoco_edge.plans.tensorrt_modules:PlanEngine",
        "Refusals": "anoco_edge.plans.tensorrt_modules:ErrorLog",
    },
    "anoco_edge.preprocess": {
        "inspected_patches": "anoco_edge.pipeline.patch_mask:inspected_patches",
        "inspected_pixels": "anoco_edge.pipeline.patch_mask:inspected_pixels",
    },
    "anoco_edge_calibration.evaluation": {
        "Plan": "anoco_edge_calibration.evaluation:EvaluationPlan",
    },
    "anoco_edge_calibration.evaluation.pixel_metrics": {
        "label_regions": "anoco_edge_calibration.evaluation.defect_regions:label_regions",
    },
    "anoco_edge_calibration.layouts": {
        "Layout": "anoco_edge_calibration.evaluation.layouts:DatasetLayout",
    },
    "anoco_edge_calibration.measuring": {
        "Contest": "anoco_edge_calibration.evaluation.unit:EvaluationSetup",
        "Entrant": "anoco_edge_calibration.evaluation.unit:VariantRun",
        "Found": "anoco_edge_calibration.evaluation.unit:ScoredPicture",
        "Look": "anoco_edge_calibration.evaluation.unit:Observer",
        "Measured": "anoco_edge_calibration.evaluation.unit:UnitResult",
        "Problem": "anoco_edge_calibration.evaluation.unit:EvaluationProblem",
        "Unit": "anoco_edge_calibration.evaluation.unit:EvaluationUnit",
        "measure": "anoco_edge_calibration.evaluation.unit:measure_unit",
    },
    "anoco_edge_calibration.ranges": {
        "Collected": "anoco_edge_calibration.int8.ranges:ActivationRanges",
        "ENOUGH": "anoco_edge_calibration.int8.calibration_set:ENOUGH",
    },
    "anoco_edge_calibration.scorers.near": {
        "Near": "anoco_edge_calibration.evaluation.scorers.neighbor_cache:NeighborCache",
    },
    "anoco_edge_calibration.tables": {
        "Row": "anoco_edge_calibration.evaluation.tables:EvaluationRow",
        "markdown": "anoco_edge_calibration.evaluation.tables:evaluation_markdown",
        "rich_table": "anoco_edge_calibration.evaluation.tables:evaluation_table",
    },
    "anoco_edge_export.expected": {
        "Expected": "anoco_edge_export.torch_reference:TorchReference",
        "ask_torch": "anoco_edge_export.torch_reference:run_torch_reference",
    },
    "anoco_edge_export.half": {
        "HALF_MAX": "anoco_edge_export.half_format:FP16_MAX",
        "HalfReport": "anoco_edge.bundle.parity_report:Fp16Report",
        "convert": "anoco_edge_export.fp16:convert_to_half",
    },
    "anoco_edge_export.rounding": {
        "Walk": "anoco_edge_export.fp16_emulation:EmulationResult",
        "rounding_graph": "anoco_edge_export.fp16_emulation:emulation_graph",
        "rounding_walk": "anoco_edge_export.fp16_emulation:emulate_half",
    },
    "anoco_edge_export.state_file": {
        "find_file": "anoco_edge_export.checkpoint:find_checkpoint",
        "read_state": "anoco_edge_export.checkpoint:read_checkpoint",
    },
    "anoco_edge.results": {
        "ResultFolder": "anoco_edge.sinks.folder:ResultFolder",
        "SavePolicy": "anoco_edge.sinks.folder:SavePolicy",
        "Summary": "anoco_edge.results.summary:RunSummary",
    },
    "anoco_edge.results.folder": {
        "read_results": "anoco_edge.results.row_reader:read_results",
        "writing_results": "anoco_edge.results.storage_errors:writing_results",
    },
    "anoco_edge.road": {
        "PythonRoad": "anoco_edge.pipeline.python:PythonPipeline",
        "Road": "anoco_edge.pipeline.base:Pipeline",
        "Subject": "anoco_edge.pipeline.base:ProductSnapshot",
        "open_road": "anoco_edge.pipeline.base:open_pipeline",
    },
    "anoco_edge.scoring.cuda": {"Described": "anoco_edge.scoring.cuda:CudaDeviceInfo"},
    "anoco_edge.selftest": {"measure": "anoco_edge.engines.selftest:measure_parity"},
    "anoco_edge.sources.closing": {"Closing": "anoco_edge.sources.base:Closeable"},
    "anoco_edge.sources.multipart": {"MOST_BYTES": "anoco_edge.sources.multipart:MAX_BYTES"},
    "anoco_edge.sources.reader": {
        "OneSize": "anoco_edge.sources.reader:FrameSizeCheck",
        "Received": "anoco_edge.sources.reader:ReaderFrame",
    },
    "anoco_edge.sources.stream": {
        "camera_devices": "anoco_edge.sources.cameras:camera_devices",
        "has_gstreamer": "anoco_edge.sources.cameras:has_gstreamer",
        "open_video": "anoco_edge.sources.files:open_video",
    },
    "anoco_edge.teaching": {"Taught": "anoco_edge.teaching.teacher:ProductChange"},
    "anoco_edge.teaching.teacher": {"Taught": "anoco_edge.teaching.teacher:ProductChange"},
    "anoco_edge.threshold": {
        "gentle_views": "anoco_edge.teaching.provisional_threshold:mild_augmentations",
        "provisional": "anoco_edge.teaching.provisional_threshold:threshold_from_scores",
        "rounding": "anoco_edge.teaching.provisional_threshold:rounding_limit",
    },
    "anoco_edge.views": {"seen_patches": "anoco_edge.pipeline.augmentation:visible_patches"},
    "anoco_edge.witness": {"BankWitness": "anoco_edge.pipeline.evidence:EvidenceLookup"},
}


def new_path(module: str) -> str | None:
    """Return the present path of a module that moved, or None for one that did not move.

    >>> new_path("anoco_edge.bench.scoring"), new_path("anoco_edge.bundle")
    ('anoco_edge.diagnostics.bench.scoring', None)
    """
    if module in MODULES:
        return MODULES[module]
    package, _, name = module.rpartition(".")
    moved = MODULES.get(package)
    return f"{moved}.{name}" if moved else None


def install() -> None:
    """Register the finder with the import system; importing `anoco_edge` calls this."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _MovedFinder())


class _MovedFinder:
    """Finds modules by their old paths, and adds old names to modules that did not move."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("anoco_edge"):
            return None
        if fullname in NAMES and new_path(fullname) is None:
            spec = PathFinder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                wrapped: Any = _WithOldNames(spec.loader)
                spec.loader = wrapped
            return spec
        new = new_path(fullname)
        if new is None:
            return None
        warnings.warn(f"{fullname} is {new} now", DeprecationWarning, stacklevel=2)
        loader: Any = _Alias(new)
        return ModuleSpec(fullname, loader, is_package=fullname in MODULES)


class _Alias:
    """Makes a module under an old path that forwards to the new one."""

    def __init__(self, new: str) -> None:
        self._new = new

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, so that Python makes an ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        target = import_module(self._new)
        renamed = _old_names(module.__name__)

        def look_up(name: str) -> Any:
            return getattr(target, name) if renamed is None else renamed(name, target)

        module.__doc__ = target.__doc__
        module.__dir__ = lambda: dir(target)  # type: ignore[method-assign]
        module.__getattr__ = look_up  # type: ignore[method-assign]


class _WithOldNames:
    """Loads a module with its real loader, and then adds its old names."""

    def __init__(self, real: Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        renamed = _old_names(module.__name__)
        if renamed is not None:
            module.__getattr__ = lambda name: renamed(name, None)  # type: ignore[method-assign]

    def __getattr__(self, name: str) -> Any:  # the real loader gives resources and source code
        return getattr(self._real, name)


def _old_names(module: str) -> Callable[[str, ModuleType | None], Any] | None:
    """Return a function that looks up the old names of a module, or None if it has none."""
    table = NAMES.get(module)
    if table is None:
        return None

    def look_up(name: str, target: ModuleType | None) -> Any:
        if name in table:
            place, _, new = table[name].partition(":")
            text = f"{module}.{name} is {place}.{new} now"
            warnings.warn(text, DeprecationWarning, stacklevel=3)
            return getattr(import_module(place), new)
        if target is not None:
            return getattr(target, name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return look_up
