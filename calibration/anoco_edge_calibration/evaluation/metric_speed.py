"""Times the pixel metrics on maps of a data set's size, beside another version of them.

    python -m anoco_edge_calibration.evaluation.metric_speed 23x512 117x512

measures 23 maps of 512x512 pixels, then 117. With `--beside FILE`, another `pixel_metrics.py` (as
`git show COMMIT:.../pixel_metrics.py` writes it) measures the same maps in turn; the report then
holds the ratio, and by how much any figure differs.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from anoco_edge.images.contract import InputContract
from anoco_edge.images.preprocess import Mask
from anoco_edge.machine import machine
from anoco_edge.pipeline.anomaly_map import Map, MapMaker
from anoco_edge_calibration.evaluation.pixel_metrics import PixelMetrics, PixelResult

STRIDE = 8  # pixels of a patch, as EfficientNet-Lite0 has them
_KINDS = 23  # different maps; more of them are these again, at other levels

Picture = tuple[Map, Mask | None]


@dataclass(frozen=True)
class MetricSpeed:
    """The medians over the rounds, in processor time, and how the two versions compare."""

    maps: int
    size: int
    seconds: float
    nanoseconds_per_pixel: float
    seconds_beside: float | None = None
    ratio: float | None = None
    largest_difference: float | None = None


def synthetic_pictures(size: int, count: int = _KINDS, seed: int = 0) -> list[Picture]:
    """Make maps as `eval` does, of which three in four have a defect that scores higher.

    >>> pictures = synthetic_pictures(64, 4)
    >>> [mask is None for _, mask in pictures], pictures[0][0].shape
    ([False, False, False, True], (64, 64))
    """
    rng = np.random.default_rng(seed)
    patches = max(size // STRIDE, 4)
    side = patches * STRIDE
    contract = InputContract(
        width=side, height=side, stride=STRIDE, rows=patches, cols=patches, dim=1
    )
    to_map = MapMaker(contract)
    pictures: list[Picture] = []
    for number in range(count):
        energy = rng.gamma(4, 0.25, (patches, patches)).astype(np.float32)
        if number % 4 == 3:
            pictures.append((to_map(energy, np.ones(energy.shape, np.bool_)), None))
            continue
        mask = np.zeros((side, side), np.bool_)
        long = patches // 6 or 1
        row, col = rng.integers(0, patches - long, 2)
        energy[row : row + long, col : col + long] += rng.uniform(1, 5)
        # The mask is larger than what scores high, as masks are.
        edge = STRIDE // 2
        low, left = max(row * STRIDE - edge, 0), max(col * STRIDE - edge, 0)
        mask[low : (row + long) * STRIDE + edge, left : (col + long) * STRIDE + edge] = True
        pictures.append((to_map(energy, np.ones(energy.shape, np.bool_)), mask))
    return pictures


def measure_speed(
    maps: int, size: int, rounds: int, beside: Callable[[], Any] | None = None
) -> MetricSpeed:
    """Measure the same maps with both versions in turn; the first round does not count."""
    pictures = synthetic_pictures(size)
    versions: dict[str, Callable[[], Any]] = {"this": PixelMetrics}
    if beside is not None:
        versions["beside"] = beside
    taken: dict[str, list[float]] = {name: [] for name in versions}
    found: dict[str, PixelResult] = {}
    for round_ in range(rounds + 1):
        for name, version in versions.items():
            seconds, found[name] = _run(version, pictures, maps)
            if round_:
                taken[name].append(seconds)
    own = statistics.median(taken["this"])
    per_pixel = 1e9 * own / found["this"].pixels
    if beside is None:
        return MetricSpeed(maps, size, own, per_pixel)
    other = statistics.median(taken["beside"])
    differences = [
        abs(getattr(found["this"], name) - getattr(found["beside"], name))
        for name in ("auroc", "pro", "f1_max")
    ]
    return MetricSpeed(maps, size, own, per_pixel, other, other / own, max(differences))


def _run(
    version: Callable[[], Any], pictures: Sequence[Picture], maps: int
) -> tuple[float, PixelResult]:
    """Return the time of this thread, so that other programs do not count, and the figures."""
    taken = 0.0
    with version() as metrics:
        for number in range(maps):
            anomaly_map, mask = pictures[number % len(pictures)]
            scaled = anomaly_map * np.float32(1 + 0.001 * (number // len(pictures)))
            start = time.thread_time()
            metrics.add(scaled, mask)
            taken += time.thread_time() - start
        start = time.thread_time()
        result: PixelResult = metrics.result()
        taken += time.thread_time() - start
    return taken, result


def load_version(file: Path) -> Callable[[], Any]:
    """Load the class PixelMetrics of another version of the module."""
    spec = importlib.util.spec_from_file_location("pixel_metrics_beside", file)
    if spec is None or spec.loader is None:
        raise typer.BadParameter(f"{file} is not a Python file")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(
        spec
    )  # dataclasses look there
    spec.loader.exec_module(module)
    version: Callable[[], Any] = module.PixelMetrics
    return version


def main(
    sizes: Annotated[list[str], typer.Argument(help="MAPSxSIZE, as 23x512.")],
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    beside: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
    json_: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Time the pixel metrics, and compare them with those of another file."""
    other = None if beside is None else load_version(beside)
    found = []
    for text in sizes:
        maps, _, size = text.partition("x")
        if not maps.isdecimal() or not size.isdecimal() or not int(maps) or not int(size):
            raise typer.BadParameter(f"{text!r} is no number of maps and size; write 23x512")
        found.append(measure_speed(int(maps), int(size), rounds, other))
    if json_:
        typer.echo(json.dumps({"machine": machine(), "speed": [asdict(one) for one in found]}))
        return
    for one in found:
        line = f"{one.maps} maps of {one.size} px: {one.seconds:.3f} s of one core"
        line += f" ({one.nanoseconds_per_pixel:.1f} ns a pixel)"
        if one.seconds_beside is not None:
            line += f"; {beside}: {one.seconds_beside:.3f} s, {one.ratio:.1f} times as long"
            line += f"; largest difference {one.largest_difference:.1e}"
        typer.echo(line)


if __name__ == "__main__":
    typer.run(main)
