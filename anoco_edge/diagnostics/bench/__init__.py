"""Measuring: a whole frame stage by stage, or the scorers alone beside what others offer."""

from anoco_edge.diagnostics.bench.frames import FrameBench, bench_frames, bench_pictures
from anoco_edge.diagnostics.bench.scoring import ScoringBench, Size, bench_scoring, parse_sizes
from anoco_edge.diagnostics.bench.statistics import Summary, summarise

__all__ = [
    "FrameBench",
    "ScoringBench",
    "Size",
    "Summary",
    "bench_frames",
    "bench_pictures",
    "bench_scoring",
    "parse_sizes",
    "summarise",
]
