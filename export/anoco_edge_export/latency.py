"""Compares the latency of exported backbones with torch, in one run.

    python -m anoco_edge_export.latency dinov3-s@448 wrn50@256

All runners have random weights, one picture and the same number of threads. Every round runs each
of them once, so that other load on the machine affects them alike. The report holds medians and
their ratio to torch eager.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from anoco_edge.engines import CpuPrecision, EngineSettings, open_engine
from anoco_edge.engines.cpu_precision import why_not_here
from anoco_edge.engines.selftest import check_engine
from anoco_edge.machine import cores, machine
from anoco_edge_export.backbone import filled_model, official_backbone, run_torch, set_size
from anoco_edge_export.bundle import export_bundle
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.options import ExportOptions
from anoco_edge_export.recipe import load_recipe
from anoco_edge_export.synthetic import synthetic_picture
from anoco_edge_export.weights import load_weights

# BF16 is measured where the processor has it.
ENGINES: dict[str, tuple[str, CpuPrecision]] = {
    "onnxruntime": ("onnxruntime", "fp32"),
    "openvino": ("openvino", "fp32"),
    "openvino, BF16": ("openvino", "bf16"),
}
RIVAL = "torch"
_WEIGHTS = "random:0"
_PAUSE = 0.3  # seconds; the threads of the runner before spin for a while and slow the next one


@dataclass(frozen=True)
class Latency:
    """The medians of the runners in milliseconds, and their ratios to torch."""

    backbone: str
    size: int
    threads: int
    rounds: int
    milliseconds: Mapping[str, float]
    ratios: Mapping[str, float]


def measure_latency(backbone: str, size: int, threads: int, rounds: int) -> Latency:
    """Export the backbone, open and self-test every engine, and time all runners in turn."""
    recipe = load_recipe(backbone)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "latency.anoco"
        options = ExportOptions(size=(size, size), weights=_WEIGHTS)
        bundle = export_bundle(backbone, target, options).bundle
        pixels = synthetic_picture(size, size, seed=1)[None]
        runners: dict[str, Callable[[], Any]] = {}
        for title, (name, precision) in ENGINES.items():
            if why_not_here(precision):
                continue
            settings = EngineSettings(threads=threads, cpu_precision=precision)
            engine = open_engine(name, bundle, settings)
            check_engine(bundle, engine, force=True)
            runners[title] = lambda engine=engine: engine.features(pixels)  # type: ignore[misc]
        loaded = load_weights(recipe, _WEIGHTS)
        model = filled_model(recipe, loaded.architecture, loaded.state)
        set_size(model, size, size)
        module = official_backbone(recipe, recipe.tapped(), model)
        lazy_import("torch").set_num_threads(threads)
        runners[RIVAL] = lambda: run_torch(module, pixels)
        taken = in_turn(runners, rounds)
    medians = {name: 1e3 * statistics.median(times) for name, times in taken.items()}
    ratios = {name: medians[name] / medians[RIVAL] for name in ENGINES if name in medians}
    return Latency(backbone, size, threads, rounds, medians, ratios)


def in_turn(
    runners: Mapping[str, Callable[[], Any]], rounds: int, pause: float = _PAUSE
) -> dict[str, list[float]]:
    """Return the seconds of each runner, one call per round; the first round does not count.

    >>> taken = in_turn({"a": lambda: None, "b": lambda: None}, 3, pause=0)
    >>> [len(times) for times in taken.values()]
    [3, 3]
    """
    taken: dict[str, list[float]] = {name: [] for name in runners}
    for round_ in range(rounds + 1):
        for name, run in runners.items():
            time.sleep(pause)
            start = time.perf_counter()
            run()
            if round_:
                taken[name].append(time.perf_counter() - start)
    return taken


def main(
    backbones: Annotated[list[str], typer.Argument(help="BACKBONE@SIZE, as dinov3-s@448.")],
    rounds: Annotated[int, typer.Option(min=1)] = 15,
    threads: Annotated[int, typer.Option(min=1)] = cores(),
    json_: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Time exported backbones in ONNX Runtime and OpenVINO beside torch eager."""
    from rich.console import Console
    from rich.table import Table

    found = []
    for text in backbones:
        name, _, size = text.partition("@")
        if not size.isdigit():
            raise typer.BadParameter(f"{text!r} has no size; write dinov3-s@448")
        found.append(measure_latency(name, int(size), threads, rounds))
    if json_:
        typer.echo(json.dumps({"machine": machine(), "latency": [asdict(f) for f in found]}))
        return
    load = os.getloadavg()[0]
    title = f"median of {rounds} frames, {threads} threads, {machine()['cpu']}, load {load:.1f}"
    table = Table("backbone", "torch", *ENGINES, title=title)
    for one in found:
        ms, ratio = one.milliseconds, one.ratios
        cells = [f"{ms[name]:.1f} ms, {ratio[name]:.2f}" if name in ms else "-" for name in ENGINES]
        table.add_row(f"{one.backbone} {one.size} px", f"{ms[RIVAL]:.1f} ms", *cells)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
