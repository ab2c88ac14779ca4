"""Measures the scorers alone: time over one bare sgemm, memory, agreement with the reference."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from anoco_edge.diagnostics.bench.agreement import Agreement, compare
from anoco_edge.diagnostics.bench.baselines import (
    RIVALS,
    YARDSTICK,
    Run,
    parse_rivals,
    same_threads,
    settle,
)
from anoco_edge.diagnostics.bench.features import (
    DESCRIPTIONS,
    SYNTHETIC,
    Features,
    FeatureSource,
    Size,
    parse_sizes,
)
from anoco_edge.diagnostics.bench.footprint import extra_memory_mb
from anoco_edge.diagnostics.bench.real import RealFeatures
from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge.machine import MachineFacts, cores, machine, versions
from anoco_edge.scoring import (
    SCORERS,
    PatchScorer,
    References,
    Scorer,
    Scores,
    choose_scorer,
    open_scorer,
)
from anoco_edge.scoring.registry import eps_of
from anoco_edge.scoring.types import DeviceScorer

__all__ = ["ScoringBench", "Size", "bench_scoring", "parse_scorers", "parse_sizes"]

_PACKAGES = ("numpy", "onnxruntime", "torch", "faiss-cpu", "threadpoolctl")
_REFERENCE_RUNS = 3  # the reference takes seconds, and its speed does not matter
# As many queries are compared with the reference as make so many pairs, but never fewer than the
# minimum. Where every reference is a neighbor, it takes 0.3 s for each query at 36864 x 1024.
_CHECKED_PAIRS, _MIN_CHECKED = 2_400_000, 16
Step = Callable[[str], None]


@dataclass(frozen=True)
class ScoringRow:
    """The figures of one scorer or rival at one size; None where something does not apply.

    `retrieval` is the share of a scorer's own time that goes into similarities, anchors and
    neighbors; the rest goes into weights and energies. `neighbors` are the median, the 95th
    percentile and the maximum of |N(i)| over the queries that were checked. A row whose name ends
    with ", new bank" is `score_patches`: it includes all that a new bank costs.
    """

    features: str
    size: str
    name: str
    kind: str
    runs: int
    median_ms: float
    min_ms: float
    ratio: float
    neighbors: tuple[int, int, int]
    retrieval: float | None = None
    extra_mb: float | None = None
    budget_mb: float | None = None
    undecided: float | None = None
    disagree: int | None = None


ScoringSettings = TypedDict(
    "ScoringSettings",
    {
        "features": dict[str, str],
        "repeat": int,
        "threads": int,
        "load before": float,
        "cpu": str,
        "machine": str,
        "cores": int,
        "memory_mb": int,
        "versions": dict[str, str],
    },
)
"""Everything that the figures depend on, as reports print it."""


@dataclass(frozen=True)
class ScoringBench:
    """All rows, remarks on what was left out and why, and what the figures depend on."""

    rows: tuple[ScoringRow, ...]
    remarks: tuple[str, ...]
    settings: ScoringSettings


def parse_scorers(text: str | None) -> list[str]:
    """Read names of scorers, separated by commas; without any, the one that `auto` chooses.

    >>> parse_scorers("onnx")
    ['onnx']
    """
    names = [name.strip() for name in (text or choose_scorer()[0]).split(",") if name.strip()]
    for name in names:
        if name not in SCORERS:
            raise UsageError(f"unknown scorer {name!r}", hint=f"use {', '.join(SCORERS.names())}")
    return list(dict.fromkeys(names))


def bench_scoring(
    sizes: Sequence[Size],
    *,
    scorers: Sequence[str] | None = None,
    rivals: Sequence[str] = (YARDSTICK,),
    features: Mapping[str, FeatureSource] | None = None,
    repeat: int = 7,
    threads: int = 0,
    step: Step = lambda _: None,
) -> ScoringBench:
    """Run every scorer and rival on the same features, in turn, `repeat` times.

    Without `scorers`, all of the table run.
    """
    if repeat < 1:
        raise UsageError(f"{repeat} repeats measure nothing", hint="give 1 or more")
    features = features or {"clustered": SYNTHETIC["clustered"]}
    for source in features.values():
        if isinstance(source, RealFeatures):  # now, and not when the sizes before it were measured
            for size in sizes:
                source.check(size)
    threads = threads or cores()
    names = parse_rivals(",".join(rivals))
    wanted = SCORERS.names() if scorers is None else scorers
    ours = list(dict.fromkeys([*wanted, *(name for name in names if name in SCORERS)]))
    others = [name for name in names if name not in SCORERS]
    load = os.getloadavg()[0]
    remarks: list[str] = []
    rows: list[ScoringRow] = []
    with same_threads(threads, others) as thread_remarks:
        remarks += thread_remarks
        for size in sizes:
            for name, source in features.items():
                comparison = _Comparison(name, size, source, ours, others, threads, step)
                rows += comparison.run(repeat)
                remarks += comparison.remarks
    here: MachineFacts = machine()
    settings: ScoringSettings = {
        "features": {name: _describe(source, sizes) for name, source in features.items()},
        "repeat": repeat,
        "threads": threads,
        "load before": round(load, 1),
        "cpu": here["cpu"],
        "machine": here["machine"],
        "cores": here["cores"],
        "memory_mb": here["memory_mb"],
        "versions": versions(_PACKAGES),
    }
    return ScoringBench(tuple(rows), tuple(dict.fromkeys(remarks)), settings)


def _describe(source: FeatureSource, sizes: Sequence[Size]) -> str:
    if isinstance(source, RealFeatures):
        return "; ".join(dict.fromkeys(source.describe(size.dim) for size in sizes))
    return DESCRIPTIONS.get(source, "features of the caller")


class _Comparison:
    """Runs all scorers and rivals on one kind of features of one size."""

    def __init__(
        self,
        features: str,
        size: Size,
        source: FeatureSource,
        scorers: Sequence[str],
        rivals: Sequence[str],
        threads: int,
        step: Step,
    ) -> None:
        self.remarks: list[str] = []
        self._features, self._size, self._threads = features, size, threads
        self._scorers, self._rivals = scorers, rivals
        self._tell = step
        self._query, self._references = source(size)
        self._bank, _ = References.of(self._references)
        self._shares: dict[str, list[float]] = {}
        self._opened: dict[str, Scorer] = {}
        self._runs: dict[str, Run] = {}
        for name in [*scorers, *rivals]:
            try:
                self._runs[name] = (
                    self._scorer(name)
                    if name in scorers
                    else RIVALS[name](self._query, self._references)
                )
            except EnvironmentMissingError as error:
                kind = "scorer" if name in scorers else "rival"
                self.remarks.append(f"{kind} {name} left out: {error}")
            else:
                if name in scorers and SCORERS.get(name).prepares:
                    self._runs[f"{name}, new bank"] = self._new_bank(name)

    def run(self, repeat: int) -> list[ScoringRow]:
        """Measure, and make one row for each scorer and rival; scorers come first."""
        self._step("the reference")
        pairs = max(_MIN_CHECKED, _CHECKED_PAIRS // self._size.references)
        checked = np.linspace(0, len(self._query) - 1, min(pairs, len(self._query))).astype(int)
        oracle = open_scorer("reference", self._bank).score(self._query[checked])
        agreements = self._warm_up(oracle, checked)
        times = self._time(repeat)
        return [self._row(name, times, oracle, agreements.get(name)) for name in self._runs]

    def _step(self, text: str) -> None:
        self._tell(f"{self._features} {self._size}: {text}")

    def _scorer(self, name: str) -> Run:
        scorer = open_scorer(name, self._bank, threads=self._threads)
        self._opened[name] = scorer
        shares = self._shares[name] = []
        query, timed = self._query, SCORERS.get(name).timed

        def run() -> Features:  # it must not hold `self`, which holds a GPU's memory
            scores = scorer.score(query)
            if timed:
                shares.append(scores.retrieval)
            return scores.energy.astype(np.float32)

        return run

    def _new_bank(self, name: str) -> Run:
        """Make what `score_patches` does, with the threads of this comparison."""
        query, references, threads = self._query, self._references, self._threads

        def run() -> Features:
            scorer = PatchScorer(references, scorer=name, threads=threads, once=True)
            return scorer.score(query).energy.astype(np.float32)

        return run

    def _warm_up(self, oracle: Scores, checked: NDArray[np.intp]) -> dict[str, Agreement]:
        """Call each once without timing it, and compare its energies with the reference."""
        agreements: dict[str, Agreement] = {}
        for name, run in self._runs.items():
            self._step(f"{name}, warming up")
            energy = run()
            if energy is not None and name != "reference":
                query = self._query[checked]
                eps = eps_of(name, half=query.dtype == np.float16)
                agreements[name] = compare(energy[checked], oracle, query, eps=eps)
        return agreements

    def _time(self, repeat: int) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {name: [] for name in self._runs}
        for k in range(repeat):
            for name, run in self._runs.items():
                if name == "reference" and k >= _REFERENCE_RUNS:
                    continue
                self._step(f"{name}, run {k + 1} of {repeat}")
                settle()
                start = time.perf_counter()
                run()
                times[name].append((time.perf_counter() - start) * 1000)
        return times

    def _row(
        self,
        name: str,
        times: dict[str, list[float]],
        oracle: Scores,
        agreement: Agreement | None,
    ) -> ScoringRow:
        extra = self._extra_memory_mb(name) if name in self._scorers else None
        middle, most, all_of_them = np.percentile(oracle.neighbors, [50, 95, 100])
        return ScoringRow(
            features=self._features,
            size=str(self._size),
            name=name,
            kind="rival" if name in self._rivals else "scorer",
            runs=len(times[name]),
            median_ms=median(times[name]),
            min_ms=min(times[name]),
            ratio=median(times[name]) / median(times[YARDSTICK]),
            neighbors=(int(middle), int(most), int(all_of_them)),
            retrieval=mean(self._shares[name]) if self._shares.get(name) else None,
            extra_mb=None if extra is None else round(extra, 1),
            budget_mb=SCORERS.get(name).memory_mb() if name in SCORERS else None,
            undecided=None if agreement is None else agreement.undecided,
            disagree=None if agreement is None else agreement.disagree,
        )

    def _extra_memory_mb(self, name: str) -> float:
        self._step(f"memory of {name}")
        opened = self._opened[name]
        if isinstance(opened, DeviceScorer):  # it knows how much of the device it holds
            return opened.device_mb()
        return extra_memory_mb(name, self._query, self._references, self._threads)
