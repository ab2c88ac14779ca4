"""Old import paths keep working for one version; each use warns and names the new path.

`MODULES` lists modules that moved, `NAMES` what was renamed inside a module (moved or not). One
finder on sys.meta_path serves both tables, so nothing else in the package knows of old names.
Remove an entry together with the version after the one in which it was added.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it takes 9 ms to import, half of what `import anoco_edge` may take
    from importlib.abc import Loader

# Since 0.2. A package's entry also covers what lies inside it.
MODULES = {
    "anoco_edge.bench": "anoco_edge.diagnostics.bench",
    "anoco_edge.bench.rivals": "anoco_edge.diagnostics.bench.baselines",
    "anoco_edge.bundle.disk": "anoco_edge.storage.atomic_files",
    "anoco_edge.canvas": "anoco_edge.pipeline.tiling",
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
    "anoco_edge.teaching.banks": "anoco_edge.teaching.bank_builder",
    "anoco_edge.teaching.examiner": "anoco_edge.teaching.draft_scorer",
    "anoco_edge.teaching.held_out": "anoco_edge.teaching.calibration_set",
    "anoco_edge.teaching.pictures": "anoco_edge.teaching.new_pictures",
    "anoco_edge.teaching.thresholds": "anoco_edge.teaching.calibrated_threshold",
    "anoco_edge.threshold": "anoco_edge.teaching.provisional_threshold",
    "anoco_edge.tiff_check": "anoco_edge.images.tiff_check",
    "anoco_edge.views": "anoco_edge.pipeline.augmentation",
    "anoco_edge.witness": "anoco_edge.pipeline.evidence",
}
# By the module as it was called then: the old name, and where it is now.
NAMES = {
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
    "anoco_edge.detector": {"Opening": "anoco_edge.detector:DetectorConfig"},
    "anoco_edge.energy": {"Seen": "anoco_edge.pipeline.energy:PatchFeatures"},
    "anoco_edge.geometry": {"Geometry": "anoco_edge.pipeline.patch_mask:PatchMask"},
    "anoco_edge.inspection": {"Witness": "anoco_edge.pipeline.inspection:EvidenceSource"},
    "anoco_edge.judgement": {
        "Judged": "anoco_edge.pipeline.postprocess:PostProcessOutput",
        "Judgement": "anoco_edge.pipeline.postprocess:PostProcessor",
    },
    "anoco_edge.native.road": {"NativeRoad": "anoco_edge.pipeline.native:NativePipeline"},
    "anoco_edge.preprocess": {
        "inspected_patches": "anoco_edge.pipeline.patch_mask:inspected_patches",
        "inspected_pixels": "anoco_edge.pipeline.patch_mask:inspected_pixels",
    },
    "anoco_edge.road": {
        "PythonRoad": "anoco_edge.pipeline.python:PythonPipeline",
        "Road": "anoco_edge.pipeline.base:Pipeline",
        "Subject": "anoco_edge.pipeline.base:ProductSnapshot",
        "open_road": "anoco_edge.pipeline.base:open_pipeline",
    },
    "anoco_edge.teaching": {"Taught": "anoco_edge.teaching.teacher:ProductChange"},
    "anoco_edge.teaching.teacher": {"Taught": "anoco_edge.teaching.teacher:ProductChange"},
    "anoco_edge.views": {"seen_patches": "anoco_edge.pipeline.augmentation:visible_patches"},
    "anoco_edge.witness": {"BankWitness": "anoco_edge.pipeline.evidence:EvidenceLookup"},
}


def new_path(module: str) -> str | None:
    """Find where a module lies now, or None for one that did not move.

    >>> new_path("anoco_edge.bench.scoring"), new_path("anoco_edge.bundle")
    ('anoco_edge.diagnostics.bench.scoring', None)
    """
    if module in MODULES:
        return MODULES[module]
    package, _, name = module.rpartition(".")
    moved = MODULES.get(package)
    return f"{moved}.{name}" if moved else None


def install() -> None:
    """Let the import system know of the tables; importing `anoco_edge` calls this."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _MovedFinder())


class _MovedFinder:
    """Finds modules by their old paths, and adds old names to modules that did not move."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("anoco_edge"):
            return None
        if fullname in NAMES and fullname not in MODULES:
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
        """Leave making the module to Python."""

    def exec_module(self, module: ModuleType) -> None:
        target = import_module(self._new)
        renamed = _old_names(module.__name__)

        def look_up(name: str) -> Any:
            return getattr(target, name) if renamed is None else renamed(name, target)

        module.__doc__ = target.__doc__
        module.__dir__ = lambda: dir(target)  # type: ignore[method-assign]
        module.__getattr__ = look_up  # type: ignore[method-assign]


class _WithOldNames:
    """Loads a module as ever, and gives it its old names besides."""

    def __init__(self, real: Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        renamed = _old_names(module.__name__)
        if renamed is not None:
            module.__getattr__ = lambda name: renamed(name, None)  # type: ignore[method-assign]

    def __getattr__(self, name: str) -> Any:  # resources, source code: as the real loader
        return getattr(self._real, name)


def _old_names(module: str) -> Callable[[str, ModuleType | None], Any] | None:
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
