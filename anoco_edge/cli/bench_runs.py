"""The measurements of `anoco-edge bench`, with progress on stderr."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from anoco_edge.cli.console import progress, warn

if TYPE_CHECKING:
    from anoco_edge.cli.option_groups import RunOptions
    from anoco_edge.cli.requests.bench import ScoringRequest
    from anoco_edge.detector import Detector
    from anoco_edge.diagnostics.bench.frames import FrameBench
    from anoco_edge.diagnostics.bench.rival_frames import RivalBench
    from anoco_edge.diagnostics.bench.scoring import ScoringBench
    from anoco_edge.engines import EngineSettings
    from anoco_edge.line.bench.latency import LineBench


def measure_frames(
    detector: Detector,
    inputs: list[str],
    frames: int,
    warmup: int,
    profile: bool,
    settings: EngineSettings,
) -> FrameBench:
    """Measure frames of the pictures, or of the references, stage by stage."""
    from anoco_edge.diagnostics.bench.frames import bench_frames, bench_pictures
    from anoco_edge.diagnostics.bench.profiling import split_scoring

    paths, what = bench_pictures(detector.bundle, detector.product, inputs)
    with progress("measuring", frames + warmup) as step:
        result = bench_frames(
            detector,
            paths,
            frames=frames,
            warmup=warmup,
            settings=settings,
            pictures_are=what,
            step=step,
        )
    for text in detector.remarks:
        warn(text)
    if profile:
        with progress("profiling the scorer") as step:
            parts, how = split_scoring(detector, paths, frames=frames, settings=settings, step=step)
        result = result.with_scoring_split(parts, how)
    return result


def measure_scoring(request: ScoringRequest, repeat: int, threads: int) -> ScoringBench:
    """Measure scorers beside their rivals."""
    from anoco_edge.diagnostics.bench.scoring import bench_scoring

    with progress("measuring") as step:
        result = bench_scoring(
            request.sizes,
            scorers=request.scorers,
            rivals=request.baselines,
            features=request.features,
            repeat=repeat,
            threads=threads,
            step=step,
        )
    for remark in result.remarks:
        warn(remark)
    return result


def measure_rival(
    path: Path,
    product: str | None,
    inputs: list[str],
    python: str,
    frames: int,
    stages: RunOptions,
) -> RivalBench:
    """Measure frames of the pictures, or of the references, beside anomalib's."""
    from anoco_edge.bundle import Bundle
    from anoco_edge.diagnostics.bench.frames import bench_pictures
    from anoco_edge.diagnostics.bench.rival_frames import bench_beside_anomalib

    bundle = Bundle.open(path)
    chosen = bundle.product(product)
    pictures, _ = bench_pictures(bundle, chosen, inputs)
    with progress("measuring beside anomalib", frames) as step:
        return bench_beside_anomalib(
            bundle,
            chosen,
            pictures,
            python=python,
            runtime=stages.runtime,
            frames=frames,
            threads=stages.threads,
            step=step,
        )


def measure_line(
    bundle: Path | None,
    product: str | None,
    inputs: list[str],
    parts: int,
    warmup: int,
    *,
    flood: bool = False,
) -> LineBench:
    """Measure a whole station with rendered parts, or with a bundle and pictures for it. With
    `flood` it is measured twice: with an idle page, and with one that is flooded."""
    from anoco_edge.bundle import Bundle
    from anoco_edge.line.bench.latency import bench_line, station_config
    from anoco_edge.line.demo_station import MATERIAL, write_demo_bundle
    from anoco_edge.station.bench.flood_bench import bench_flood

    with tempfile.TemporaryDirectory(prefix="anoco-bench-") as folder:
        if bundle is None:
            opened, source = write_demo_bundle(Path(folder)), f"rendered:{MATERIAL}"
        else:
            opened = bundle.resolve()
            name = Bundle.open(opened).product(product).name
            shown = Path(inputs[0]) if inputs else opened / "products" / name / "references"
            source = f"folder:{shown.resolve()}"
        config = station_config(opened, product, source, folder, page=flood)
        rounds = 2 if flood else 1
        with progress("measuring a line", rounds * 2 * (parts + warmup)) as step:
            if not flood:
                return bench_line(config, Path(folder), parts, warmup, step)
            return bench_flood(config, Path(folder), parts, warmup, step)
