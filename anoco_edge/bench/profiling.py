"""Scoring split as the paper splits it: retrieval (section 3.2) and the graph (3.3, 3.4)."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anoco_edge.bench.statistics import Summary, summarise
from anoco_edge.detector import Detector
from anoco_edge.engines import EngineSettings, open_engine
from anoco_edge.errors import AnocoError
from anoco_edge.geometry import Geometry
from anoco_edge.pictures import read_picture
from anoco_edge.preprocess import prepare
from anoco_edge.scoring import Parameters, References
from anoco_edge.scoring.onnx_scorer import OnnxScorer
from anoco_edge.scoring.reference import ReferenceScorer, retrieve
from anoco_edge.scoring.types import Floats

# Nodes of scoring.onnx that find anchors and neighbours; a test holds them against the graph.
RETRIEVAL = frozenset(
    [
        "q_norm",
        "q_unit",
        "s",
        "anchor_column",
        "s_best",
        "anchor",
        "anchor_unit",
        "a",
        "s_best_size",
        "s_best_ulp",
        "s_best_up",
        "bar",
        "slack",
        "violators",
        "t",
        "solo",
        "over",
        "mark",
    ]
)
_KERNEL = "_kernel_time"
_MAX_FRAMES = 20
Split = tuple[float, float]


def split_scoring(
    detector: Detector,
    pictures: Sequence[Path],
    *,
    frames: int = 20,
    settings: EngineSettings | None = None,
    step: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Summary], str]:
    """`retrieval` and `graph` in milliseconds a frame, and how that was measured."""
    settings = settings or EngineSettings()
    queries = query_features(detector, pictures[: min(frames, _MAX_FRAMES)], settings)
    product = detector.product
    parameters = Parameters(product.lam, product.metric, product.floor)
    bank = detector.bank.references
    runs = [queries[k % len(queries)] for k in range(min(frames, _MAX_FRAMES) + 1)]
    if detector.choices["scorer"][0] == "onnx":
        model = detector.bundle.read(detector.bundle.file("scoring.onnx"))
        splits = _split_onnx(runs, bank, parameters, model, settings.threads, step)
        how = "ONNX Runtime's own profile of the scoring graph (sums of kernel times)"
    else:
        splits = _split_reference(runs, bank, parameters, step)
        how = "retrieval timed alone, graph is the rest"
    warm = splits[1:]  # the first run pays for the first touch of all memory
    parts = {
        "retrieval": summarise([retrieval for retrieval, _ in warm]),
        "graph": summarise([graph for _, graph in warm]),
    }
    return parts, f"{how}, {len(warm)} frames"


def query_features(
    detector: Detector, pictures: Sequence[Path], settings: EngineSettings
) -> list[Floats]:
    """The features that are scored for each picture."""
    bundle = detector.bundle
    engine = open_engine(detector.choices["engine"][0], bundle, settings)
    geometry = Geometry.of(bundle, detector.product)
    queries: list[Floats] = []
    for path in pictures:
        pixels, placement = prepare(read_picture(path), bundle.manifest.input)
        counted = geometry.counted(placement).reshape(-1)
        queries.append(engine.features(pixels[None])[0][counted])
    return queries


def _split_onnx(
    runs: Sequence[Floats],
    bank: References,
    parameters: Parameters,
    model: bytes,
    threads: int,
    step: Callable[[], None],
) -> list[Split]:
    chunks: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "scoring"
        scorer = OnnxScorer(bank, parameters, model=model, threads=threads, profile=trace)
        for query in runs:
            scorer.score(query)
            chunks.append(scorer.chunks(len(query)))
            step()
        events = json.loads(scorer.end_profile().read_text())
    return split_events(events, chunks)


def split_events(events: Sequence[dict[str, Any]], chunks: Sequence[int]) -> list[Split]:
    """Milliseconds of retrieval and graph for each frame, which took `chunks` runs of the graph.

    >>> event = {"cat": "Node", "ts": 1, "dur": 2000, "name": "s_kernel_time"}
    >>> split_events([event, {**event, "ts": 2, "name": "w_kernel_time"}], [1])
    [(2.0, 2.0)]
    """
    kernels = [e for e in events if e["cat"] == "Node" and e["name"].endswith(_KERNEL)]
    kernels.sort(key=lambda e: int(e["ts"]))
    # The graph has no branches, so every run leaves the same number of events.
    nodes, left = divmod(len(kernels), sum(chunks))
    if nodes == 0 or left:
        raise AnocoError(
            f"ONNX Runtime's profile has {len(kernels)} events for {sum(chunks)} runs",
            hint="profile fewer frames (--frames 10), or leave --profile out",
        )
    splits: list[Split] = []
    start = 0
    for count in chunks:
        part = kernels[start : start + nodes * count]
        start += nodes * count
        found = [e["dur"] for e in part if e["name"].removesuffix(_KERNEL) in RETRIEVAL]
        whole = sum(e["dur"] for e in part)
        splits.append((sum(found) / 1000, (whole - sum(found)) / 1000))
    return splits


def _split_reference(
    runs: Sequence[Floats], bank: References, parameters: Parameters, step: Callable[[], None]
) -> list[Split]:
    scorer = ReferenceScorer(bank, parameters)
    features = bank.features.astype(np.float64)
    units = features / np.linalg.norm(features, axis=1)[:, None]
    block = max(1, 4_000_000 // len(units))  # as in the scorer
    splits: list[Split] = []
    for query in runs:
        start = time.perf_counter()
        scorer.score(query)
        scored = time.perf_counter()
        for i in range(0, len(query), block):
            q = query[i : i + block].astype(np.float64)
            retrieve(q / np.linalg.norm(q, axis=1)[:, None], units)
        retrieval = time.perf_counter() - scored
        splits.append((retrieval * 1000, max(0.0, scored - start - retrieval) * 1000))
        step()
    return splits
