"""Times the pixel figures of an evaluation beside those of an earlier commit, on real maps.

    python tests/support/pixel_speed.py BUNDLE DATASET [--commit c5bcf6c] [--rounds 5]

teaches each category with one reference and scores its test pictures once. Then this version and
the code of the commit, each in a process of its own, compute the pixel figures of these energies in
turns: masks, maps, and the metrics. Times are medians of processor time of the computing thread.
The first round does not count, so masks that are read once for all runs are known by then.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import pickle
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STAGES = ("masks", "maps", "metrics")
NAMES = {
    "read_defect_mask": ("anoco_edge_calibration.evaluation.dataset", "read_defect_mask"),
    "PixelMetrics": ("anoco_edge_calibration.evaluation.pixel_metrics", "PixelMetrics"),
    "MapMaker": ("anoco_edge.pipeline.anomaly_map", "MapMaker"),
    "enlarge": ("anoco_edge.pipeline.anomaly_map", "enlarge"),
    "InputContract": ("anoco_edge.images.contract", "InputContract"),
    "Placement": ("anoco_edge.images.preprocess", "Placement"),
}
OLD_NAMES = {
    "read_defect_mask": ("anoco_edge_calibration.dataset", "read_mask"),
    "PixelMetrics": ("anoco_edge_calibration.pixel_metrics", "PixelMetrics"),
    "MapMaker": ("anoco_edge.maps", "MapMaker"),
    "enlarge": ("anoco_edge.maps", "enlarge"),
    "InputContract": ("anoco_edge.bundle.schema", "InputContract"),
    "Placement": ("anoco_edge.preprocess", "Placement"),
}


def write_energies(bundle: Path, dataset: Path, folder: Path) -> list[Path]:
    """Score all test pictures with one reference, and write one file for each category."""
    from anoco_edge import Bundle
    from anoco_edge_calibration.evaluation.bundle_evaluation import EngineRequest
    from anoco_edge_calibration.evaluation.layouts import open_dataset
    from anoco_edge_calibration.evaluation.unit import (
        EvaluationSetup,
        EvaluationUnit,
        VariantRun,
        measure_unit,
    )
    from anoco_edge_calibration.evaluation.variants import Variant

    opened, written = Bundle.open(bundle), []
    engine, _ = EngineRequest().open(opened)
    setup = EvaluationSetup(opened, engine, [Variant("anoco")])

    def write(category: str, run: VariantRun) -> None:
        pictures = []
        for one in run.found:
            mask = one.picture.mask and str(one.picture.mask)
            pictures.append((one.energy, one.scored, vars(one.placement), mask))
        written.append(folder / f"{category}.pickle")
        contract = run.reader.tiling.contract.model_dump()
        written[-1].write_bytes(pickle.dumps((contract, pictures)))

    for category in open_dataset(dataset).categories:
        measure_unit(EvaluationUnit(dataset.name, category, ((1, 0),)), setup, observe=write)
    return written


class Worker:
    """Computes the pixel figures of a file of energies with the code that this process imports."""

    def __init__(self, file: Path) -> None:
        now = importlib.util.find_spec("anoco_edge.pipeline") is not None
        for name, (module, attribute) in (NAMES if now else OLD_NAMES).items():
            setattr(self, name, getattr(importlib.import_module(module), attribute))
        contract, pictures = pickle.loads(file.read_bytes())
        known = self.InputContract.model_fields
        self.contract = self.InputContract(**{k: v for k, v in contract.items() if k in known})
        self.pictures = [(e, s, self.Placement(**place), mask) for e, s, place, mask in pictures]
        self.memory: dict[str, int] = {}
        self.regions: dict[str, Any] | None = None
        if now:  # what `eval` gives to a single run, and what it reads once
            from anoco_edge_calibration.evaluation import pixel_metrics, unit

            share = unit._PIXEL_THREADS
            self.memory["held"] = share * pixel_metrics.HELD
            self.memory["most_values"] = share * pixel_metrics.MOST_VALUES
            self.regions = {}

    def mask(self, file: str | None, place: Any) -> Any:
        if file is None or (self.regions and file in self.regions):
            return file and self.regions[file]
        mask = self.read_defect_mask(Path(file), (place.picture_width, place.picture_height))
        if self.regions is None:
            return mask
        from anoco_edge_calibration.evaluation.defect_regions import DefectRegions

        self.regions[file] = DefectRegions.from_mask(mask)
        return self.regions[file]

    def run(self) -> tuple[dict[str, float], list[float]]:
        """Return the seconds of each stage, and the figures."""
        taken = dict.fromkeys(STAGES, 0.0)
        to_map = self.MapMaker(self.contract)
        with self.PixelMetrics(**self.memory) as metrics:
            for energy, scored, place, file in self.pictures:
                times = [time.thread_time()]
                mask = self.mask(file, place)
                times.append(time.thread_time())
                anomaly_map = self.enlarge(to_map(energy, scored), place)
                times.append(time.thread_time())
                metrics.add(anomaly_map, mask)
                times.append(time.thread_time())
                for stage, start, end in zip(STAGES, times, times[1:], strict=False):
                    taken[stage] += end - start
            start = time.thread_time()
            result = metrics.result()
            taken["metrics"] += time.thread_time() - start
        return taken, [result.auroc, result.pro, result.f1_max]


def serve(file: Path, tree: Path | None) -> None:
    """Measure once for each line of the input."""
    if tree is not None:
        # An editable installation would import this version.
        sys.meta_path[:] = [f for f in sys.meta_path if "Scikit" not in type(f).__name__]
        sys.path[:0] = [str(tree), str(tree / "calibration")]
    worker = Worker(file)
    for _ in sys.stdin:
        print(json.dumps(worker.run()), flush=True)


def extract(commit: str, folder: Path) -> Path:
    command = ["git", "-C", ROOT, "archive", commit, "anoco_edge", "calibration"]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def compare(file: Path, tree: Path, rounds: int) -> str:
    """Measure both versions in turns, and return a line for each and one of their ratios."""
    taken: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
    figures: dict[str, list[float]] = {}
    processes = {}
    for name, arguments in (("before", ["--tree", tree]), ("now", [])):
        command = [sys.executable, __file__, "--worker", file, *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        processes[name] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
    for round_ in range(rounds + 1):
        for name, process in processes.items():
            print(file=process.stdin, flush=True)
            seconds, figures[name] = json.loads(process.stdout.readline())
            if round_:
                taken[name].append({**seconds, "all": sum(seconds.values())})
    for process in processes.values():
        process.communicate()
    lines, medians = [file.stem], {}
    for name, times in taken.items():
        medians[name] = {s: statistics.median(t[s] for t in times) for s in (*STAGES, "all")}
        lines.append(f"  {name:6}" + "".join(f"  {s} {v:.4f} s" for s, v in medians[name].items()))
    ratios = {s: medians["before"][s] / max(v, 1e-6) for s, v in medians["now"].items()}
    lines.append("  ratio " + "".join(f"  {s} {v:.1f}" for s, v in ratios.items()))
    most = max(abs(a - b) for a, b in zip(figures["before"], figures["now"], strict=True))
    return "\n".join([*lines, f"  largest difference of a figure: {most:.1e}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, metavar="BUNDLE DATASET")
    parser.add_argument("--commit", default="c5bcf6c")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--tree", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        serve(given.worker, given.tree)
        return
    if len(given.paths) != 2:
        parser.error("give a bundle and a data set")
    with tempfile.TemporaryDirectory() as folder:
        tree = extract(given.commit, Path(folder, "tree"))
        for file in write_energies(*given.paths, Path(folder)):
            print(compare(file, tree, given.rounds), flush=True)


if __name__ == "__main__":
    main()
