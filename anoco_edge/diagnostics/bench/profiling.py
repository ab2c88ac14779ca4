"""Splits the time of scoring as the paper does: retrieval (section 3.2), graph (3.3, 3.4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from anoco_edge.detector import Detector
from anoco_edge.diagnostics.bench.statistics import LatencySummary, summarize
from anoco_edge.engines import EngineSettings, open_engine
from anoco_edge.images.decode import read_picture
from anoco_edge.images.preprocess import prepare
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.pipeline.tiling import Tiling
from anoco_edge.scoring import open_scorer
from anoco_edge.scoring.types import Floats

_MAX_FRAMES = 20


def split_scoring(
    detector: Detector,
    pictures: Sequence[Path],
    *,
    frames: int = 20,
    settings: EngineSettings | None = None,
    step: Callable[[], None] = lambda: None,
) -> tuple[dict[str, LatencySummary], str]:
    """Measure `retrieval` and `graph` in milliseconds per frame; also says how it was measured."""
    settings = settings or EngineSettings()
    queries = query_features(detector, pictures[: min(frames, _MAX_FRAMES)], settings)
    bank = detector.bank.references
    parameters = detector.product.parameters(bank)
    scorer = open_scorer(detector.choices["scorer"], bank, parameters, threads=settings.threads)
    splits = []
    for k in range(min(frames, _MAX_FRAMES) + 1):
        start = time.perf_counter()
        share = scorer.score(queries[k % len(queries)]).retrieval
        total = (time.perf_counter() - start) * 1000
        splits.append((share * total, (1 - share) * total))
        step()
    warm = splits[1:]  # the first run also maps all memory
    parts = {
        "retrieval": summarize([retrieval for retrieval, _ in warm]),
        "graph": summarize([graph for _, graph in warm]),
    }
    return parts, f"the scorer's own clock, {len(warm)} frames"


def query_features(
    detector: Detector, pictures: Sequence[Path], settings: EngineSettings
) -> list[Floats]:
    """Compute the features that are scored for each picture."""
    bundle = detector.bundle
    precision = detector.choices["cpu_precision"]
    if precision is not None and precision.name == "bf16":
        settings = replace(settings, cpu_precision="bf16")
    engine = open_engine(detector.choices["engine"], bundle, settings)
    patch_mask = PatchMask.of(bundle, detector.product)
    queries: list[Floats] = []
    tiling = Tiling(bundle.manifest.input, detector.product.tiles)
    for path in pictures:
        pixels, placement = prepare(read_picture(path), tiling.contract)
        scored = patch_mask.scored(placement).reshape(-1)
        queries.append(tiling.features(engine, pixels[None])[0][scored])
    return queries
