"""A backbone in INT8: ranges from good parts, what every layer costs, and which layers stay out.

The energies decide. Each layer alone is put into INT8 to see how far they move; then all are, and
the worst are taken out again, one by one, until the gate passes or the recipe allows no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.engines.selftest import ENERGY_LIMIT, selftest_energies
from anoco_edge.errors import ParityError
from anoco_edge.scoring.onnx_session import open_session
from anoco_edge.storage.atomic_files import writing
from anoco_edge_calibration.ranges import ENOUGH, METHOD, PERCENTILE, Collected, collect_ranges
from anoco_edge_export.half import convert
from anoco_edge_export.heavy import load
from anoco_edge_export.onnx_graph import INPUT, OUTPUT, run_onnx, save
from anoco_edge_export.parity import DiffersError, Gate, energy_figures
from anoco_edge_export.quantise import SWITCHES, named_products, quantisable, quantised, switched
from anoco_edge_export.recipe import Int8Rules

Picture = NDArray[np.uint8]

# What the gate saw, and what it did not.
ARITHMETIC = (
    "ONNX Runtime multiplied INT8 matrices as integers and convolved in FP32 with numbers rounded "
    "to INT8; the integer kernels of a GPU were not run, and a CPU without VNNI may saturate"
)
_NAMED = 5  # layers in an error
_ROOM = 0.8  # of the self-test's limit


@dataclass(frozen=True)
class Int8Export:
    """What an export brings to INT8: the gate, the rules, prepared pictures of good parts, a folder
    to write in that is `target`'s, and whom to tell how far it is."""

    gate: Gate
    rules: Int8Rules
    islands: Sequence[str]
    pictures: Sequence[Picture]
    workspace: Path
    target: str
    progress: Callable[[str], None]


def to_int8(graph: Any, job: Int8Export) -> tuple[Any, dict[str, Any]]:
    """The traced graph in INT8 and the report, or ParityError with the worst layers' names."""
    plain = named_products(graph)
    layers = quantisable(plain, job.rules.keep)
    collected = _collect(plain, layers, job)
    costs = _costs(plain, layers, collected.whole, job)
    left_out, done = _until_it_passes(plain, layers, collected.whole, costs, job)
    inside = [name for name in layers if name not in left_out]
    return done, {
        "method": f"{METHOD} {PERCENTILE} of absolute values",
        "rest": job.rules.rest,
        "layers": costs,
        "left_out": left_out,
        "most_left_out": job.rules.most_left_out,
        "halves": _halves(plain, inside, collected, job),
        "enough_pictures": ENOUGH,
        "arithmetic": ARITHMETIC,
    }


def _collect(plain: Any, layers: Mapping[str, str], job: Int8Export) -> Collected:
    tensors = list(dict.fromkeys(layers.values()))
    opened = load("onnx").ModelProto()
    opened.CopyFrom(plain)
    opened.graph.output.extend(load("onnx").ValueInfoProto(name=name) for name in tensors)
    total = len(job.pictures)

    def tell(done: int) -> None:
        job.progress(f"collecting INT8 ranges, {done} of {total} pictures")

    tell(0)
    with _Saved(opened, job) as path:
        return collect_ranges(path, tensors, job.pictures, tell)


def _costs(
    plain: Any, layers: Mapping[str, str], ranges: Mapping[str, float], job: Int8Export
) -> dict[str, float]:
    """By layer: how far the energies move, relative to their mean, when it alone is INT8."""
    from anoco_edge.scoring import score_patches

    picture, bank = job.gate.pixels[0][None], job.gate.expected.features[1]
    costs = {}
    with _Saved(switched(plain, layers, ranges), job) as path:
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
    ranges: Mapping[str, float],
    costs: Mapping[str, float],
    job: Int8Export,
) -> tuple[list[str], Any]:
    """The layers that had to stay out, worst first, and the graph without them in INT8."""
    worst = sorted(costs, key=lambda name: -costs[name])
    difference = DiffersError("it has no layers")
    for count in range(min(job.rules.most_left_out, len(layers)) + 1):
        out = worst[:count]
        job.progress("comparing INT8 with torch" + (f" without {', '.join(out)}" if out else ""))
        done = _typed(quantised(plain, [n for n in layers if n not in out], ranges), job)
        try:
            with _Saved(done, job) as path:
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
        hint="no bundle was written; use --precision fp16, or more and other --calib pictures",
    )


def _check_selftest(path: Path, gate: Gate) -> None:
    """With room to spare, because every device runs it again and none may fail what passed here."""
    own = gate.expected.picture
    (features,) = run_onnx(path, gate.pixels[own : own + 1])
    expected = selftest_energies(gate.expected.features[own])
    error = float(np.abs(selftest_energies(features) - expected).max() / expected.max())
    limit = _ROOM * ENERGY_LIMIT["int8"]
    if not error <= limit:
        raise DiffersError(f"self-test energies are off by {error:.1%}, {limit:.0%} is allowed")


def _halves(
    plain: Any, inside: Sequence[str], collected: Collected, job: Int8Export
) -> dict[str, float] | None:
    """How far energies are apart that rest on ranges of either half, where pictures are few."""
    if collected.halves is None or len(job.pictures) >= ENOUGH:
        return None
    job.progress("comparing INT8 ranges of either half of the pictures")
    features = []
    for half in collected.halves:
        with _Saved(_typed(quantised(plain, inside, half), job), job) as path:
            features.append(run_onnx(path, job.gate.pixels))
    figures = energy_figures(features[0], features[1])
    return {name: figures[name] for name in ("energy_spearman", "top_energy_error")}


def _typed(graph: Any, job: Int8Export) -> Any:
    """What is not INT8 in the precision of the rules."""
    return graph if job.rules.rest == "fp32" else convert(graph, [*job.islands, "int8"])[0]


class _Saved:
    """A graph in the workspace for as long as the block lasts."""

    def __init__(self, graph: Any, job: Int8Export) -> None:
        self.graph, self.job = graph, job

    def __enter__(self) -> Path:
        with writing(self.job.target):
            self.files = save(self.graph, self.job.workspace / "int8.onnx")
        return self.files[0]

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.unlink()
