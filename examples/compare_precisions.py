"""BF16 beside FP32 on this processor: features, energies, verdicts and the time of a frame.

    python examples/compare_precisions.py SET [SET ...] [--bundle NAME.anoco]

takes sets in the MVTec-AD layout. Of each category it teaches four good pictures and calibrates
with the others, once in FP32 and once in BF16, and lets three detectors judge every test picture:
FP32, BF16, and the product that was calibrated in FP32 judged in BF16. Needs openvino and a
processor with BF16: pip install -e '.[eval,openvino]'.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anoco_edge import AnocoError, Bundle, Detector
from anoco_edge.bundle import open_builtin
from anoco_edge.engines import CpuPrecision, EngineSettings, open_engine
from anoco_edge.images.decode import read_picture
from anoco_edge.images.preprocess import prepare
from anoco_edge.teaching import NewPicture, Teacher
from anoco_edge_calibration.evaluation.metrics import auroc

PRECISIONS: tuple[CpuPrecision, ...] = ("fp32", "bf16")
CROSSED = "taught in fp32, judged in bf16"
HEAD = (
    "| category | good / bad | cosine min, 1 %, median | energy | score | AUROC fp32, bf16 | "
    "rejected good fp32, bf16, crossed | missed fp32, bf16, crossed | other verdicts bf16, crossed "
    "| ms fp32, bf16 |"
)


@dataclass
class Verdicts:
    """What one detector said about the test pictures of a category."""

    scores: list[float] = field(default_factory=list)
    rejected: list[bool] = field(default_factory=list)
    energies: list[NDArray[np.float32]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@dataclass
class Category:
    """One category: the pictures to teach, to calibrate and to judge, and which are defective."""

    name: str
    references: list[Path]
    others: list[Path]
    tests: list[Path]
    bad: list[bool]


def categories(root: Path, shots: int, seed: int) -> Iterator[Category]:
    """Find the categories of a set; the references are drawn by the seed."""
    for folder in sorted(path.parent for path in root.glob("*/train")):
        good = sorted(path for path in (folder / "train/good").iterdir() if path.is_file())
        random.Random(seed).shuffle(good)
        tests = sorted(path for path in (folder / "test").glob("*/*") if path.is_file())
        bad = [path.parent.name != "good" for path in tests]
        yield Category(folder.name, good[:shots], good[shots:], tests, bad)


def teach(bundle: Bundle, category: Category, precision: CpuPrecision, rate: float) -> None:
    """Teach and calibrate a product of the category in one precision."""
    settings = EngineSettings(cpu_precision=precision)
    teacher = Teacher.open(bundle, "openvino", settings=settings)
    product = f"{category.name}-{precision}"
    references = [NewPicture.from_file(path) for path in category.references]
    teacher.enroll(references, product)
    known = {picture.pixels for picture in references}
    others = [NewPicture.from_file(path) for path in category.others]
    others = [picture for picture in others if picture.pixels not in known]
    groups = [picture.name for picture in others]
    teacher.calibrate(others, product, false_reject=rate, groups=groups, accept_fewer=True)


def judge(bundle: Bundle, category: Category) -> dict[str, Verdicts]:
    """Let the three detectors judge every picture in turn."""
    opened = {
        name: Detector.open(
            bundle, f"{category.name}-{taught}", "openvino", settings=EngineSettings(**how)
        )
        for name, taught, how in (
            ("fp32", "fp32", {}),
            ("bf16", "bf16", {}),
            (CROSSED, "fp32", {"cpu_precision": "bf16"}),
        )
    }
    for name, wanted in zip(opened, ("fp32", "bf16", "bf16"), strict=True):
        runs = opened[name].choices["cpu_precision"]
        assert runs is not None and runs.name == wanted, runs
    found = {name: Verdicts() for name in opened}
    for path in category.tests:
        rgb = read_picture(path)
        for name, detector in opened.items():
            start = time.perf_counter()
            inspection = detector.inspect(rgb)
            found[name].times.append((time.perf_counter() - start) * 1000)
            found[name].scores.append(inspection.score)
            found[name].rejected.append(inspection.verdict == "anomalous")
            found[name].energies.append(inspection.energy[inspection.scored])
    return found


def cosines(bundle: Bundle, pictures: list[Path]) -> NDArray[np.float64]:
    """Compare the features of all patches in both precisions."""
    engines = [
        open_engine("openvino", bundle, EngineSettings(cpu_precision=name)) for name in PRECISIONS
    ]
    found = []
    for path in pictures:
        pixels = prepare(read_picture(path), bundle.manifest.input)[0][None]
        first, second = (engine.features(pixels)[0].astype(np.float64) for engine in engines)
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        found.append((first * second).sum(axis=1) / norms)
    return np.concatenate(found)


def row(category: Category, found: dict[str, Verdicts], cosine: NDArray[np.float64]) -> str:
    """Make the line of the table for one category."""
    full, half, crossed = found.values()
    bad = np.array(category.bad)
    of_peak = [
        np.abs(a - b).max() / a.max() for a, b in zip(full.energies, half.energies, strict=True)
    ]
    of_score = np.abs(np.array(half.scores) / np.array(full.scores) - 1)
    counts = [np.array(judged.rejected) for judged in (full, half, crossed)]
    ranks = ", ".join(f"{100 * auroc(j.scores, bad):.1f}" for j in (full, half))
    low, median = np.percentile(cosine, [1, 50])
    times = ", ".join(f"{statistics.median(j.times):.1f}" for j in (full, half))
    cells = (
        category.name,
        f"{(~bad).sum()} / {bad.sum()}",
        f"{cosine.min():.4f}, {low:.4f}, {median:.4f}",
        f"{np.median(of_peak):.1%}, {np.max(of_peak):.1%}",
        f"{np.median(of_score):.1%}, {of_score.max():.1%}",
        ranks,
        ", ".join(str(int(c[~bad].sum())) for c in counts),
        ", ".join(str(int((~c[bad]).sum())) for c in counts),
        ", ".join(str(int((c != counts[0]).sum())) for c in counts[1:]),
        times,
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", type=Path, nargs="+", help="folders of categories, MVTec-AD layout")
    parser.add_argument("--bundle", type=Path, help="default: the built-in backbone")
    parser.add_argument("--shots", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--false-reject", type=float, default=0.05)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        source = Bundle.open(options.bundle) if options.bundle else open_builtin()
        path = Path(shutil.copytree(source.path, Path(temporary) / "parts.anoco"))
        shutil.rmtree(path / "products", ignore_errors=True)
        bundle = Bundle.open(path)
        print(
            f"{bundle.manifest.backbone.id}, {bundle.manifest.input.width} px, {options.shots} "
            f"references, seed {options.seed}; load {os.getloadavg()[0]:.1f} at the beginning\n"
            "energy: largest difference in a picture over its largest energy, median and most;\n"
            "score: relative difference, median and most\n\n"
            f"{HEAD}\n|{'---|' * 10}"
        )
        try:
            for root in options.sets:
                for category in categories(root, options.shots, options.seed):
                    for precision in PRECISIONS:
                        teach(bundle, category, precision, options.false_reject)
                    found = judge(bundle, category)
                    print(row(category, found, cosines(bundle, category.tests)), flush=True)
        except AnocoError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        print(f"\nload {os.getloadavg()[0]:.1f} at the end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
