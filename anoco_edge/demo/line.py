"""Simulates a line: a camera looks at rendered parts one by one, and their verdicts are kept."""

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
from anoco_edge.errors import PictureError
from anoco_edge.images.frame import Frame
from anoco_edge.reporting.overlay import heat
from anoco_edge.results import RunInfo, RunSummary, Sink, inspect_source
from anoco_edge.results.overlay import Overlay
from anoco_edge.results.rows import FailedRow, ResultRow, Row
from anoco_edge.sinks.folder import ResultFolder
from anoco_edge.sources.base import Closeable
from anoco_edge.storage.atomic_files import writing
from anoco_edge.teaching import NewPicture, Teacher

REFERENCES = 4
SHOWN_GOOD, SHOWN_BAD = 3, 5  # of each material, on the contact sheet


@dataclass(frozen=True)
class Shift:
    """The run of one material; rows and parts are in the order in which the camera saw them."""

    material: str
    parts: Sequence[Part]
    rows: Sequence[ResultRow]
    cells: Sequence[Cell]

    def count(self, *, defective: bool, verdict: str) -> int:
        """Return one cell of the confusion matrix."""
        pairs = zip(self.parts, self.rows, strict=True)
        return sum((p.defect is not None) == defective and r.verdict == verdict for p, r in pairs)


def make_parts(
    material: str,
    good: int,
    defective: int,
    seed: int = 0,
    step: Callable[[str], None] = lambda _: None,
) -> tuple[list[Part], list[Part]]:
    """Render reference parts, and parts for the line: good and defective ones mixed, all seeded."""
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
    """Write the parts as PNG files, to look at and to try the other commands on."""
    with writing(str(folder)):
        for kind, parts in (("references", references), ("line", line)):
            for number, part in enumerate(parts):
                path = folder / kind / (part.defect or "good") / f"{number:03d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(part.rgb).save(path)


def teach(bundle: Bundle | Path, material: str, references: Sequence[Part]) -> None:
    """Enroll the reference parts as a product named like their material."""
    pictures = [NewPicture.from_array(f"{material}-{p.seed}.png", p.rgb) for p in references]
    Teacher.open(bundle).enroll(pictures, material, new_level="auto")


class _RowList:
    """The sink that holds all rows of a shift in memory; `step` is called after each."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.rows: list[ResultRow] = []
        self._step = step

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> None:
        if isinstance(row, FailedRow):  # rendered parts can all be inspected
            raise PictureError(row.error)
        self.rows.append(row)
        self._step()

    def finish(self, summary: RunSummary) -> None:
        """Do nothing, because the rows stay in memory."""


def run_shift(
    bundle: Bundle, material: str, line: Sequence[Part], out: Path, step: Callable[[], None]
) -> Shift:
    """Inspect every part with a simulated camera; results and report go to `out`."""
    detector = Detector.open(bundle, material)
    run = RunInfo.of(detector, f"demo: {material}", live=False)
    kept = _RowList(step)
    sinks: list[Sink] = [ResultFolder(out, run, save="all"), kept]
    summary = inspect_source(detector, SimulatedCamera(material, line), sinks, batch=1)
    if summary.interrupted:
        raise KeyboardInterrupt
    if summary.lost is not None:
        raise summary.lost
    chosen = [k for k, p in enumerate(line) if p.defect is None][:SHOWN_GOOD]
    kinds = {p.defect: k for k, p in reversed(list(enumerate(line))) if p.defect is not None}
    chosen += sorted(kinds.values())[:SHOWN_BAD]  # the first of each kind
    cells = [_cell(detector, line[k], kept.rows[k]) for k in chosen]
    return Shift(material, line, kept.rows, cells)


def _cell(detector: Detector, part: Part, row: ResultRow) -> Cell:
    result = detector.inspect(part.rgb)
    ratio = "" if row.ratio is None else f"  {row.ratio:.1f}x"
    return Cell(
        picture=part.rgb,
        overlay=heat(part.rgb, result.map, result.threshold),
        caption=f"{part.defect or 'good'}{ratio}",
        verdict=row.verdict,
        correct=(row.verdict == "anomalous") == (part.defect is not None),
    )


class SimulatedCamera(Closeable):
    """A source whose frames are rendered parts."""

    live = False
    skipped = 0

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
        """Do nothing: there is no device to release."""
