"""A simulated line: parts are rendered, a camera looks at them one by one, verdicts are kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from anoco_edge.bundle import Bundle
from anoco_edge.demo.contact_sheet import Cell
from anoco_edge.demo.render import DEFECTS, Part, render
from anoco_edge.detector import Detector
from anoco_edge.images.frame import Frame
from anoco_edge.reporting.overlay import heat
from anoco_edge.results import ResultFolder, inspect_source
from anoco_edge.sinks.folder import Row
from anoco_edge.sources.base import Closing
from anoco_edge.storage.atomic_files import writing
from anoco_edge.teaching import NewPicture, Teacher

REFERENCES = 4
SHOWN_GOOD, SHOWN_BAD = 3, 5  # of each material, on the contact sheet


@dataclass(frozen=True)
class Shift:
    """What one material's run gave; rows and parts in the order the camera saw them."""

    material: str
    parts: Sequence[Part]
    rows: Sequence[Row]
    cells: Sequence[Cell]

    def count(self, *, defective: bool, verdict: str) -> int:
        """One cell of the confusion matrix."""
        pairs = zip(self.parts, self.rows, strict=True)
        return sum(
            (p.defect is not None) == defective and r["verdict"] == verdict for p, r in pairs
        )


def make_parts(
    material: str,
    good: int,
    defective: int,
    seed: int = 0,
    step: Callable[[str], None] = lambda _: None,
) -> tuple[list[Part], list[Part]]:
    """Reference parts, then parts for the line: good and defective ones mixed, all seeded."""
    kinds = DEFECTS[material]
    first = 1000 * seed
    plan: list[tuple[int, str | None]] = [(first + 100 + k, None) for k in range(good)]
    plan += [(first + 200 + k, kinds[k % len(kinds)]) for k in range(defective)]
    order = np.random.default_rng(seed).permutation(len(plan))
    parts = []
    for part_seed, defect in [
        *((first + k, None) for k in range(REFERENCES)),
        *(plan[k] for k in order),
    ]:
        parts.append(render(material, part_seed, defect))
        step(material)
    return parts[:REFERENCES], parts[REFERENCES:]


def save_parts(folder: Path, references: Sequence[Part], line: Sequence[Part]) -> None:
    """PNG files to look at, and to try the other commands on."""
    with writing(str(folder)):
        for kind, parts in (("references", references), ("line", line)):
            for number, part in enumerate(parts):
                path = folder / kind / (part.defect or "good") / f"{number:03d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(part.rgb).save(path)


def teach(bundle: Bundle, material: str, references: Sequence[Part]) -> None:
    """Enrol the reference parts as a product named like their material."""
    pictures = [NewPicture.from_array(f"{material}-{p.seed}.png", p.rgb) for p in references]
    Teacher.open(bundle).enroll(pictures, material)


def run_shift(
    bundle: Bundle, material: str, line: Sequence[Part], out: Path, step: Callable[[], None]
) -> Shift:
    """The camera looks at every part; results and report go to `out`."""
    detector = Detector.open(bundle, material)
    folder = ResultFolder(out, save="all")
    camera = SimulatedCamera(material, line)
    rows: list[Row] = []

    def on_row(row: Row) -> None:
        rows.append(row)
        step()

    summary = inspect_source(detector, camera, folder, batch=1, on_row=on_row)
    if summary.interrupted:
        raise KeyboardInterrupt
    if summary.lost is not None:
        raise summary.lost
    folder.finish(detector, {}, f"demo: {material}")
    chosen = [k for k, p in enumerate(line) if p.defect is None][:SHOWN_GOOD]
    kinds = {p.defect: k for k, p in reversed(list(enumerate(line))) if p.defect is not None}
    chosen += sorted(kinds.values())[:SHOWN_BAD]  # the first of each kind
    return Shift(material, line, rows, [_cell(detector, line[k], rows[k]) for k in chosen])


def _cell(detector: Detector, part: Part, row: Row) -> Cell:
    result = detector.inspect(part.rgb)
    return Cell(
        picture=part.rgb,
        overlay=heat(part.rgb, result.map, result.threshold),
        caption=f"{part.defect or 'good'}  {row['ratio']:.1f}x",
        verdict=row["verdict"],
        correct=(row["verdict"] == "anomalous") == (part.defect is not None),
    )


class SimulatedCamera(Closing):
    """A Source whose frames are rendered parts."""

    live = False
    skipped = 0
    ignored = 0

    def __init__(self, material: str, parts: Sequence[Part]) -> None:
        self.name = f"simulated camera, {material}"
        self.total = len(parts)
        self._parts = parts
        self._material = material

    def __iter__(self) -> Iterator[Frame]:
        for number, part in enumerate(self._parts):
            label = f"{self._material}-{part.defect or 'good'}#{number}"
            yield Frame(label, number, part.rgb, None, 0.0, time.monotonic())

    def close(self) -> None:
        """Nothing to let go of."""
