"""The native runtime beside Python on 50 rendered parts: the same verdicts and maps, and the time.

    python examples/compare_runtimes.py

exports efficientnet-lite0, teaches four good parts of each material, and lets three detectors look
at each part in turn. Exits with 1 where they disagree. Needs: pip install -e '.[demo,openvino]'.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path

import numpy as np

from anoco_edge import AnocoError, Bundle, Detector
from anoco_edge.cli.views.export_progress import export_bundle
from anoco_edge.demo.line import make_parts, teach
from anoco_edge.demo.render import MATERIALS, Part
from anoco_edge.engines import open_engine
from anoco_edge.images.preprocess import Mask, prepare
from anoco_edge.native.library import VARIABLE, find_library
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.scoring import score_patches

NATIVE, OPENVINO, ONNXRUNTIME = "native", "python, openvino", "python, onnxruntime"
# How far maps may be apart, relative to their peak. From the same features every number is the same
# but for the order of sums; another engine rounds features otherwise.
RIVALS = {OPENVINO: 1e-5, ONNXRUNTIME: 1e-4}
# A patch's neighbours are found by comparing similarities. Where two are this close, rounding may
# decide otherwise, and both are right: DESIGN section 3. To it comes what engines differ by.
FLOAT32_MARGIN = 2e-6
REACH = 2  # patches that a patch's energy reaches in the map: interpolation, then smoothing
STAGES = ("preprocess", "backbone", "scoring", "map")


@dataclass
class Record:
    """What one detector showed: milliseconds a part, and how far it was from the native one."""

    times: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=lambda: {s: [] for s in STAGES})
    other_verdicts: int = 0
    worst_map: float = 0.0
    worst_anywhere: float = 0.0
    left_out: list[float] = field(default_factory=list)  # share of each map
    undecided: int = 0  # patches, of
    patches: int = 0


def open_all(bundle: Path, product: str) -> dict[str, Detector]:
    """Native first."""
    return {
        NATIVE: Detector.open(bundle, product, runtime="native"),
        OPENVINO: Detector.open(bundle, product, engine="openvino"),
        ONNXRUNTIME: Detector.open(bundle, product, engine="onnxruntime"),
    }


class Decisions:
    """Which patches of a part rounding decides, by the reference in float64."""

    def __init__(self, detector: Detector) -> None:
        self._engines = [open_engine(name, detector.bundle) for name in ("onnxruntime", "openvino")]
        self._contract = detector.bundle.manifest.input
        self._bank = detector.bank.references.features

    def undecided(self, part: Part) -> Mask:
        """One entry a patch."""
        pixels = prepare(part.rgb, self._contract)[0][None]
        first, second = (engine.features(pixels)[0].astype(float) for engine in self._engines)
        units = [f / np.linalg.norm(f, axis=1, keepdims=True) for f in (first, second)]
        # No similarity changes by more than this, so no difference of two by more than twice that.
        apart = np.linalg.norm(units[0] - units[1], axis=1)
        margin = score_patches(first, self._bank, scorer="reference").margin
        assert margin is not None
        mask: Mask = margin <= FLOAT32_MARGIN + 2 * apart
        return mask.reshape(self._contract.rows, self._contract.cols)

    def reached(self, patches: Mask) -> Mask:
        """The pixels of the map that these patches have a part in."""
        near = np.zeros_like(patches)
        for row, col in zip(*np.nonzero(patches), strict=True):
            near[max(row - REACH, 0) : row + REACH + 1, max(col - REACH, 0) : col + REACH + 1] = 1
        return np.kron(near, np.ones((self._contract.stride,) * 2, np.bool_))


def compare(detectors: dict[str, Detector], parts: list[Part], records: dict[str, Record]) -> None:
    """Every part by every detector, in every order: threads of the one before may still spin."""
    names, orders = list(detectors), list(permutations(detectors))
    decisions = Decisions(detectors[ONNXRUNTIME])
    for name in names:
        detectors[name].inspect(parts[0].rgb)  # the first picture finds nothing ready
    for number, part in enumerate(parts):
        found: dict[str, Inspection] = {}
        for name in orders[number % len(orders)]:
            start = time.perf_counter()
            found[name] = detectors[name].inspect(part.rgb)
            records[name].times.append((time.perf_counter() - start) * 1000)
            for stage, times in records[name].stages.items():
                times.append(found[name].timings[stage])
        for name in RIVALS:
            mine, other, record = found[NATIVE], found[name], records[name]
            gap = np.abs(mine.input_map - other.input_map) / other.input_map.max()
            record.worst_anywhere = max(record.worst_anywhere, float(gap.max()))
            if name == ONNXRUNTIME:
                undecided = decisions.undecided(part)
                reached = decisions.reached(undecided)
                gap = gap[~reached]
                record.left_out.append(float(reached.mean()))
                record.undecided += int(undecided.sum())
                record.patches += undecided.size
            record.worst_map = max(record.worst_map, float(gap.max()))
            record.other_verdicts += mine.verdict != other.verdict


def show(records: dict[str, Record], parts: int) -> bool:
    """The table; True when all agree."""
    print(f"{parts} parts, medians in milliseconds, interleaved\n")
    print(f"{'runtime':22}{'frame':>8}" + "".join(f"{stage:>12}" for stage in STAGES))
    for name, record in records.items():
        stages = "".join(f"{statistics.median(t):12.2f}" for t in record.stages.values())
        print(f"{name:22}{statistics.median(record.times):8.2f}{stages}")
    print()
    agree = True
    for name, limit in RIVALS.items():
        record = records[name]
        passed = record.other_verdicts == 0 and record.worst_map <= limit
        agree &= passed
        print(
            f"native against {name}: {parts - record.other_verdicts} of {parts} verdicts the same, "
            f"maps within {record.worst_map:.1e} of their peak (limit {limit:g})"
            f": {'agrees' if passed else 'DISAGREES'}"
        )
    other = records[ONNXRUNTIME]
    print(
        f"\nLeft out of the latter: {statistics.mean(other.left_out):.0%} of the maps, around the "
        f"{other.undecided} of {other.patches} patches\nwhose neighbours rounding decides. "
        f"There and elsewhere maps are within {other.worst_anywhere:.1e}."
    )
    return agree


def build_library(folder: Path) -> Path:
    """From runtime/, where none came with the package."""
    runtime = Path(__file__).parents[1] / "runtime"
    commands: tuple[list[str | Path], ...] = (
        ["cmake", "-S", runtime, "-B", folder, "-DANOCO_BUILD_TESTS=OFF"],
        ["cmake", "--build", folder, "--parallel", "2"],
    )
    for command in commands:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "libanoco_edge.so"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", type=int, default=50)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--size", type=int, default=256, help="input of the backbone, in pixels")
    options = parser.parse_args()
    os.environ["ANOCO_EDGE_CPU_PRECISION"] = "fp32"  # ONNX Runtime has nothing else
    with tempfile.TemporaryDirectory() as temporary:
        if find_library() is None:
            os.environ[VARIABLE] = str(build_library(Path(temporary) / "runtime"))
        bundle = Path(temporary) / "parts.anoco"
        try:
            export_bundle(options.backbone, bundle, size=(options.size, options.size))
            records = {name: Record() for name in (NATIVE, *RIVALS)}
            for k, material in enumerate(MATERIALS):
                share = (options.parts + k) // len(MATERIALS)
                references, line = make_parts(material, share // 2, share - share // 2)
                teach(Bundle.open(bundle), material, references)
                compare(open_all(bundle, material), line, records)
        except AnocoError as error:
            print(error, file=sys.stderr)
            return error.exit_code
    return 0 if show(records, len(records[NATIVE].times)) else 1


if __name__ == "__main__":
    sys.exit(main())
