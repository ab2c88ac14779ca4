"""Measures a whole frame stage by stage, or the scorers alone beside other implementations."""

from anoco_edge.diagnostics.bench.frames import FrameBench, bench_frames, bench_pictures
from anoco_edge.diagnostics.bench.scoring import ScoringBench, Size, bench_scoring, parse_sizes
from anoco_edge.diagnostics.bench.statistics import LatencySummary, summarize

__all__ = [
    "FrameBench",
    "LatencySummary",
    "ScoringBench",
    "Size",
    "bench_frames",
    "bench_pictures",
    "bench_scoring",
    "parse_sizes",
    "summarize",
]
