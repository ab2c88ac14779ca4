"""Measures how long a frame takes, stage by stage, on this machine with this bundle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path

from typing_extensions import NotRequired, TypedDict  # pydantic wants these before Python 3.12

from anoco_edge.bundle import Bundle, Product
from anoco_edge.detector import Detector
from anoco_edge.diagnostics.bench.statistics import LatencySummary, summarize
from anoco_edge.engines import EngineSettings
from anoco_edge.errors import UsageError
from anoco_edge.machine import (
    MachineFacts,
    cores,
    machine,
    peak_mb,
    reset_peak,
    resident_mb,
    versions,
)
from anoco_edge.sources.files import find_pictures

STAGES = ("decode", "preprocess", "backbone", "scoring", "map", "total")
_PACKAGES = ("numpy", "pillow", "onnxruntime", "onnxruntime-gpu", "openvino")


@dataclass(frozen=True)
class MemoryUse:
    """Megabytes in use after loading, at the peak, and by how much frames raised the peak."""

    loaded_mb: float
    peak_mb: float
    growth_mb: float


class FrameSettings(TypedDict):
    """Everything that the figures depend on, as reports print it."""

    frames: int
    warmup: int
    pictures: str
    runtime: str
    engine: str
    scorer: str
    remarks: NotRequired[str]
    cpu_precision: NotRequired[str]
    device: str
    threads: int
    arena: bool
    blocking_sync: bool
    bundle: str
    bundle_sha256: str
    backbone: str
    input: str
    product: str
    bank: str
    cpu: str
    machine: str
    cores: int
    memory_mb: int
    versions: dict[str, str]
    profile: NotRequired[str]


class FrameDocument(TypedDict):
    """The figures as JSON."""

    stages: dict[str, dict[str, float]]
    throughput: float
    memory: dict[str, float]
    summary: str
    settings: FrameSettings


@dataclass(frozen=True)
class FrameBench:
    """Times in milliseconds by stage; `settings` is everything that the figures depend on."""

    stages: dict[str, LatencySummary]
    throughput: float
    memory: MemoryUse
    settings: FrameSettings

    def with_scoring_split(self, parts: dict[str, LatencySummary], how: str) -> FrameBench:
        """Add the two halves of scoring as stages of their own, after it."""
        stages = {}
        for name, summary in self.stages.items():
            stages[name] = summary
            if name == "scoring":
                stages |= {f"scoring: {part}": s for part, s in parts.items()}
        return replace(self, stages=stages, settings={**self.settings, "profile": how})

    def in_words(self) -> str:
        """Say in a sentence where the time goes."""
        total = self.stages["total"].mean
        shares = {name: self.stages[name].mean / total for name in STAGES[:-1]}
        ranked = sorted(shares, key=lambda name: -shares[name])
        parts = [f"{name} {shares[name]:.0%}".replace("%", " %") for name in ranked]
        return f"{parts[0]} of a frame, then {', '.join(parts[1:3])}"

    def to_dict(self) -> FrameDocument:
        """Convert the figures to what is written as JSON."""
        return {
            "stages": {name: asdict(summary) for name, summary in self.stages.items()},
            "throughput": self.throughput,
            "memory": asdict(self.memory),
            "summary": self.in_words(),
            "settings": self.settings,
        }


def bench_pictures(
    bundle: Bundle, product: Product, inputs: Sequence[str]
) -> tuple[list[Path], str]:
    """Find the pictures to run, `inputs` or the product's own references, and say what they are."""
    if not inputs:
        folder = bundle.product_folder(product.name)
        paths = [bundle.locate(reference.file, folder) for reference in product.references]
        return paths, f"{len(paths)} references of the product"
    found = find_pictures(inputs, "bench takes pictures and folders of them")
    return [Path(path) for path in found], f"{len(found)} pictures of {', '.join(inputs)}"


def bench_frames(
    detector: Detector,
    pictures: Sequence[Path],
    *,
    frames: int = 50,
    warmup: int = 5,
    settings: EngineSettings | None = None,
    pictures_are: str = "",
    step: Callable[[], None] = lambda: None,
) -> FrameBench:
    """Inspect `frames` pictures from their files, after `warmup` pictures that do not count.

    `settings` are those that the detector was opened with; they are recorded.
    """
    if frames < 1 or warmup < 0 or not pictures:
        raise UsageError(
            f"{frames} frames after {warmup} of warm-up from {len(pictures)} pictures cannot be"
            " measured",
            hint="give 1 frame or more and a picture",
        )
    loaded, before = resident_mb(), peak_mb()
    fresh = reset_peak()
    waiting = cycle(pictures)
    for path in islice(waiting, warmup):
        detector.inspect(path)
        step()
    times: dict[str, list[float]] = {name: [] for name in STAGES}
    start = time.perf_counter()
    for path in islice(waiting, frames):
        timings = detector.inspect(path).timings
        for name in STAGES:
            times[name].append(timings[name])
        step()
    elapsed = time.perf_counter() - start
    peak = peak_mb()
    # Where the peak cannot be reset it may stem from loading; then growth is what exceeds it.
    growth = max(0.0, peak - (loaded if fresh else max(loaded, before)))
    return FrameBench(
        stages={name: summarize(values) for name, values in times.items()},
        throughput=frames / elapsed,
        memory=MemoryUse(round(loaded, 1), round(max(before, peak), 1), round(growth, 1)),
        settings=_frame_settings(
            detector,
            settings or EngineSettings(),
            frames,
            warmup,
            pictures_are or f"{len(pictures)} pictures",
        ),
    )


def _frame_settings(
    detector: Detector, settings: EngineSettings, frames: int, warmup: int, pictures: str
) -> FrameSettings:
    engine, scorer = detector.choices["engine"], detector.choices["scorer"]
    here: MachineFacts = machine()
    manifest, product = detector.bundle.manifest, detector.product
    patches, dim = detector.bank.references.features.shape
    found: FrameSettings = {
        "frames": frames,
        "warmup": warmup,
        "pictures": pictures,
        "runtime": detector.runtime,
        "engine": f"{engine.name} ({engine.reason})",
        "scorer": f"{scorer.name} ({scorer.reason})",
        "device": settings.device,
        "threads": settings.threads or cores(),
        "arena": settings.arena,
        "blocking_sync": settings.blocking_sync,
        "bundle": detector.bundle.path.name,
        "bundle_sha256": manifest.checksum,
        "backbone": f"{manifest.backbone.id} {manifest.backbone.precision}",
        "input": f"{manifest.input.width}x{manifest.input.height} {manifest.input.fit}",
        "product": f"{product.name} (generation {product.generation})",
        "bank": f"{patches} patches x {dim}",
        "cpu": here["cpu"],
        "machine": here["machine"],
        "cores": here["cores"],
        "memory_mb": here["memory_mb"],
        "versions": versions(_PACKAGES),
    }
    if (precision := detector.choices["cpu_precision"]) is not None:
        found["cpu_precision"] = f"{precision.name} ({precision.reason})"
    if detector.remarks:
        found["remarks"] = "; ".join(detector.remarks)
    return found
