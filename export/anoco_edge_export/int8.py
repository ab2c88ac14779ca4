"""Converts a backbone to INT8, with ranges from good parts and a choice of layers.

The energies decide. Each layer alone is put into INT8 to see how far the energies move. Then all
layers are put into INT8, and the worst are taken out again, one by one, until the graph passes the
gate or the recipe allows no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle.parity_report import Int8Report, PictureRecord, RangeStability
from anoco_edge.engines.selftest import ENERGY_LIMIT, selftest_energies
from anoco_edge.errors import ParityError
from anoco_edge.scoring.onnx_session import open_session
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge_export.fp16 import convert_to_half
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.onnx_graph import INPUT, OUTPUT, run_onnx, save_graph
from anoco_edge_export.parity import DiffersError, Gate, energy_figures
from anoco_edge_export.qdq import (
    SWITCHES,
    add_switches,
    named_products,
    quantizable_layers,
    quantize,
)
from anoco_edge_export.range_collector import RangeCollector, Ranges, RangeTable
from anoco_edge_export.recipe import Int8Rules

Picture = NDArray[np.uint8]

# Which arithmetic the gate has run, and which it has not.
ARITHMETIC = (
    "ONNX Runtime multiplied INT8 matrices as integers and convolved in FP32 with numbers rounded "
    "to INT8; the integer kernels of a GPU were not run, and a CPU without VNNI may saturate"
)
_NAMED = 5  # an error names so many layers
_ROOM = 0.8  # the share of the self-test's limit that an export may use


@dataclass(frozen=True)
class Int8Export:
    """What an export brings to the INT8 conversion.

    `prepared` are the calibration pictures at the size of the input. Graphs are written into
    `workspace`; an error about a full disk names `target`, the bundle that they are for.
    """

    gate: Gate
    rules: Int8Rules
    islands: Sequence[str]
    calibration: RangeCollector
    prepared: Sequence[Picture]
    workspace: Path
    target: str
    progress: Callable[[str], None]


def to_int8(graph: Any, job: Int8Export) -> tuple[Any, Int8Report]:
    """Return the traced graph in INT8 and its report.

    Raise a ParityError that names the worst layers if the graph cannot pass the gate.
    """
    plain = named_products(graph)
    layers = quantizable_layers(plain, job.rules.keep)
    collected = _collect(plain, layers, job)
    costs = _costs(plain, layers, collected.whole, job)
    left_out, done = _until_it_passes(plain, layers, collected.whole, costs, job)
    inside = [name for name in layers if name not in left_out]
    return done, Int8Report(
        method=job.calibration.method,
        rest=job.rules.rest,
        layers=costs,
        left_out=tuple(left_out),
        most_left_out=job.rules.most_left_out,
        halves=_stability(plain, inside, collected, job),
        enough_pictures=job.calibration.enough,
        arithmetic=ARITHMETIC,
        pictures=tuple(
            PictureRecord(picture.name, sha256_bytes(picture.data))
            for picture in job.calibration.pictures
        ),
    )


def _collect(plain: Any, layers: Mapping[str, str], job: Int8Export) -> RangeTable:
    """Measure the ranges of the tensors that enter the layers."""
    tensors = list(dict.fromkeys(layers.values()))
    opened = lazy_import("onnx").ModelProto()
    opened.CopyFrom(plain)
    opened.graph.output.extend(lazy_import("onnx").ValueInfoProto(name=name) for name in tensors)
    total = len(job.prepared)

    def tell(done: int) -> None:
        job.progress(f"collecting INT8 ranges, {done} of {total} pictures")

    tell(0)
    with _TemporaryGraph(opened, job) as path:
        return job.calibration.collect(path, tensors, job.prepared, tell)


def _costs(
    plain: Any, layers: Mapping[str, str], ranges: Ranges, job: Int8Export
) -> dict[str, float]:
    """Return for each layer how far the energies move, relative to their mean, in INT8 alone."""
    from anoco_edge.scoring import score_patches

    picture, bank = job.gate.pixels[0][None], job.gate.reference.features[1]
    costs = {}
    with _TemporaryGraph(add_switches(plain, layers, ranges), job) as path:
        session = open_session(path, "the graph with switches")

        def energies(on: int | None) -> NDArray[np.float64]:
            switches = np.arange(len(layers)) == (-1 if on is None else on)
            (found,) = session.run([OUTPUT], {INPUT: picture, SWITCHES: switches})
            return np.asarray(score_patches(found[0], bank).energy, dtype=np.float64)

        exact = energies(None)
        for index, name in enumerate(layers):
            job.progress(f"trying INT8 on {name}, {index + 1} of {len(layers)} layers")
            costs[name] = float(np.abs(energies(index) - exact).mean() / exact.mean())
    return costs


def _until_it_passes(
    plain: Any,
    layers: Mapping[str, str],
    ranges: Ranges,
    costs: Mapping[str, float],
    job: Int8Export,
) -> tuple[list[str], Any]:
    """Return the layers that had to stay out, worst first, and the graph with the rest in INT8."""
    worst = sorted(costs, key=lambda name: -costs[name])
    difference = DiffersError("it has no layers")
    for count in range(min(job.rules.most_left_out, len(layers)) + 1):
        out = worst[:count]
        job.progress("comparing INT8 with torch" + (f" without {', '.join(out)}" if out else ""))
        done = _typed(quantize(plain, [n for n in layers if n not in out], ranges), job)
        try:
            with _TemporaryGraph(done, job) as path:
                job.gate.checks(done, path)
                _check_selftest(path, job.gate)
            return out, done
        except DiffersError as error:
            difference = error
    named = ", ".join(f"{name} ({costs[name]:.1%})" for name in worst[:_NAMED])
    raise ParityError(
        f"INT8 differs from torch even with {job.rules.most_left_out} layers left in "
        f"{job.rules.rest.upper()} ({difference.runtime}): {difference}; the worst layers, by how "
        f"far each alone moves the energies, are {named}",
        hint="no bundle was written; use `precision='fp16'`, or more calibration pictures",
    )


def _check_selftest(path: Path, gate: Gate) -> None:
    """Raise DiffersError unless the self-test passes with room to spare.

    Every device runs it again, and none may fail a test that passed here.
    """
    own = gate.reference.picture
    (features,) = run_onnx(path, gate.pixels[own : own + 1])
    expected = selftest_energies(gate.reference.features[own])
    error = float(np.abs(selftest_energies(features) - expected).max() / expected.max())
    limit = _ROOM * ENERGY_LIMIT["int8"]
    if not error <= limit:
        raise DiffersError(f"self-test energies are off by {error:.1%}, {limit:.0%} is allowed")


def _stability(
    plain: Any, inside: Sequence[str], collected: RangeTable, job: Int8Export
) -> RangeStability | None:
    """Compare the energies that rest on ranges of either half, where the pictures are few."""
    if collected.halves is None or len(job.prepared) >= job.calibration.enough:
        return None
    job.progress("comparing INT8 ranges of either half of the pictures")
    features = []
    for half in collected.halves:
        with _TemporaryGraph(_typed(quantize(plain, inside, half), job), job) as path:
            features.append(run_onnx(path, job.gate.pixels))
    figures = energy_figures(features[0], features[1])
    return RangeStability(figures.energy_spearman, figures.top_energy_error)


def _typed(graph: Any, job: Int8Export) -> Any:
    """Return the graph with everything that is not INT8 in the precision of the rules."""
    if job.rules.rest == "fp32":
        return graph
    return convert_to_half(graph, job.islands, quantized=True)[0]


class _TemporaryGraph:
    """A graph that is a file in the workspace for as long as the block lasts."""

    def __init__(self, graph: Any, job: Int8Export) -> None:
        self.graph, self.job = graph, job

    def __enter__(self) -> Path:
        with writing(self.job.target):
            self.files = save_graph(self.graph, self.job.workspace / "int8.onnx")
        return self.files[0]

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.unlink()
