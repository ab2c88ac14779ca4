"""The scorers alone: time over one bare sgemm, extra memory, agreement with the reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from anoco_edge.bench.agreement import Agreement, compare
from anoco_edge.bench.features import Size, make_features, parse_sizes
from anoco_edge.bench.footprint import extra_memory_mb
from anoco_edge.bench.rivals import (
    RIVALS,
    YARDSTICK,
    Features,
    Run,
    parse_rivals,
    same_threads,
    settle,
)
from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge.machine import cores, machine, versions
from anoco_edge.scoring import SCORERS, References, Scores, open_scorer

__all__ = ["ScoringBench", "Size", "bench_scoring", "parse_scorers", "parse_sizes"]

_PACKAGES = ("numpy", "onnxruntime", "torch", "faiss-cpu", "threadpoolctl")
_REFERENCE_RUNS = 3  # it is the specification, not a competitor, and takes seconds
Step = Callable[[str], None]


@dataclass(frozen=True)
class ScoringRow:
    """One contestant at one size; None where something does not apply."""

    size: str
    name: str
    kind: str
    runs: int
    median_ms: float
    min_ms: float
    ratio: float
    extra_mb: float | None = None
    budget_mb: float | None = None
    undecided: float | None = None
    disagree: int | None = None


@dataclass(frozen=True)
class ScoringBench:
    """All rows, what was left out and why, and what the figures depend on."""

    rows: tuple[ScoringRow, ...]
    remarks: tuple[str, ...]
    settings: dict[str, Any]


def parse_scorers(text: str | None) -> list[str]:
    """Names of scorers; without any, all there are.

    >>> parse_scorers("onnx")
    ['onnx']
    """
    names = [name.strip() for name in (text or ",".join(SCORERS)).split(",") if name.strip()]
    for name in names:
        if name not in SCORERS:
            raise UsageError(f"unknown scorer {name!r}", hint=f"use {', '.join(SCORERS)}")
    return list(dict.fromkeys(names))


def bench_scoring(
    sizes: Sequence[Size],
    *,
    scorers: Sequence[str] = SCORERS,
    rivals: Sequence[str] = (YARDSTICK,),
    data: str = "clustered",
    repeat: int = 7,
    threads: int = 0,
    step: Step = lambda _: None,
) -> ScoringBench:
    """Every scorer and rival on the same features, in turn, `repeat` times."""
    if repeat < 1:
        raise UsageError(f"{repeat} repeats measure nothing", hint="give 1 or more")
    threads = threads or cores()
    names = parse_rivals(",".join(rivals))
    remarks: list[str] = []
    rows: list[ScoringRow] = []
    with same_threads(threads, names) as disobedient:
        remarks += disobedient
        for size in sizes:
            rows += _one_size(size, scorers, names, data, repeat, threads, step, remarks)
    settings = {
        "data": data,
        "repeat": repeat,
        "threads": threads,
        **machine(),
        "versions": versions(_PACKAGES),
    }
    return ScoringBench(tuple(rows), tuple(dict.fromkeys(remarks)), settings)


def _one_size(
    size: Size,
    scorers: Sequence[str],
    rivals: Sequence[str],
    data: str,
    repeat: int,
    threads: int,
    step: Step,
    remarks: list[str],
) -> list[ScoringRow]:
    query, references = make_features(size, data)
    bank, _ = References.of(references)
    step(f"{size}: the reference")
    oracle = open_scorer("reference", bank).score(query)
    runs = _contestants(query, references, bank, scorers, rivals, threads, remarks)
    agreements = _warm_up(runs, oracle, query)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for k in range(repeat):
        for name, run in runs.items():
            if name == "reference" and k >= _REFERENCE_RUNS:
                continue
            step(f"{size}: {name}, run {k + 1} of {repeat}")
            settle()
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) * 1000)
    yardstick = median(times[YARDSTICK])
    rows = []
    for name in runs:
        agreement = agreements.get(name)
        extra = None
        if name in scorers:
            step(f"{size}: memory of {name}")
            extra = round(extra_memory_mb(name, size, data, threads), 1)
        rows.append(
            ScoringRow(
                size=str(size),
                name=name,
                kind="scorer" if name in scorers else "rival",
                runs=len(times[name]),
                median_ms=median(times[name]),
                min_ms=min(times[name]),
                ratio=median(times[name]) / yardstick,
                extra_mb=extra,
                budget_mb=_budget_mb(name),
                undecided=None if agreement is None else agreement.undecided,
                disagree=None if agreement is None else agreement.disagree,
            )
        )
    return rows


def _contestants(
    query: Features,
    references: Features,
    bank: References,
    scorers: Sequence[str],
    rivals: Sequence[str],
    threads: int,
    remarks: list[str],
) -> dict[str, Run]:
    """Scorers first, then rivals; one that is not installed is named and left out."""
    runs: dict[str, Run] = {}
    for name in scorers:
        try:
            scorer = open_scorer(name, bank, threads=threads)
        except EnvironmentMissingError as error:
            remarks.append(f"scorer {name} left out: {error}")
            continue
        runs[name] = lambda scorer=scorer: scorer.score(query).energy  # type: ignore[misc]
    for name in rivals:
        try:
            runs[name] = RIVALS[name](query, references)
        except EnvironmentMissingError as error:
            remarks.append(f"rival {name} left out: {error}")
    return runs


def _warm_up(runs: dict[str, Run], oracle: Scores, query: Features) -> dict[str, Agreement]:
    """One call of each that is not timed; what computes energies is held against the oracle."""
    agreements: dict[str, Agreement] = {}
    for name, run in runs.items():
        if name == "reference":
            continue  # it ran already: it is the oracle
        energy = run()
        if energy is not None:
            agreements[name] = compare(energy, oracle, query)
    return agreements


def _budget_mb(name: str) -> float | None:
    from anoco_edge.scoring import native, onnx_scorer

    budgets = {"onnx": onnx_scorer.MEMORY_MB, "native": native.MEMORY_MB}
    return float(budgets[name]) if name in budgets else None
