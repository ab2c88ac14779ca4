"""One unit of an evaluation: a category, taught by some draws of its references, and measured.

A unit depends on no other one, and what it gives is plain values: units may run side by side, in
other processes or on other machines, and are put together by `evaluation.merge`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle, Product
from anoco_edge.engines import Engine
from anoco_edge.errors import (
    AnocoError,
    EnvironmentMissingError,
    PictureError,
    ScoringError,
    StorageError,
)
from anoco_edge.images.decode import read_picture
from anoco_edge.images.preprocess import Mask, Pixels, Placement
from anoco_edge.machine import cores
from anoco_edge.pipeline.anomaly_map import Map, MapMaker, enlarge
from anoco_edge.pipeline.energy import EnergyReader, PatchFeatures, PictureEnergy
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching import NO_CHANGE, Draft, NewPicture, Settings, Teacher
from anoco_edge_calibration.dataset import Category, TestPicture, read_mask
from anoco_edge_calibration.metrics import aupr, auroc, f1_max
from anoco_edge_calibration.pixel_metrics import PixelMetrics
from anoco_edge_calibration.scorers import Near
from anoco_edge_calibration.tables import IMAGE_METRICS, PIXEL_METRICS, Figures, Row, Shots
from anoco_edge_calibration.variants import Variant

Step = Callable[[str], None]
Look = Callable[[str, "Entrant"], None]
Draw = tuple[Shots, int]
"""How many references, and the seed that draws them."""

# Scorers of several draws run side by side, so that a picture is decoded once for all of them, as
# long as their banks and grids stay within this.
MEMORY_BYTES = 512_000_000
_PIXEL_THREADS = 4  # counting takes 100 MB each, whatever the number of pictures


@dataclass(frozen=True)
class Unit:
    """What is to be measured: everything that `Contest` does not say."""

    dataset: str
    category: Category
    draws: tuple[Draw, ...]


@dataclass(frozen=True)
class Contest:
    """Who scores, and how the references are taught: the same for all units."""

    bundle: Bundle
    engine: Engine
    variants: Sequence[Variant]
    settings: Settings = NO_CHANGE
    like: Product | None = None
    scorer: str = "auto"
    threads: int = 0
    batch: int = 4


@dataclass(frozen=True)
class PictureScore:
    """What one scorer said of one test picture."""

    category: str
    source: str
    defect: str | None
    scorer: str
    shots: Shots
    seed: int
    score: float


@dataclass(frozen=True)
class Problem:
    """Something that could not be measured; the rest was."""

    category: str
    source: str
    what: str


@dataclass
class Measured:
    """What a unit found, what is missing from it and why. It can be pickled."""

    unit: Unit
    rows: list[Row] = field(default_factory=list)
    pictures: list[PictureScore] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    tested: dict[Path, str] = field(default_factory=dict)
    """Test pictures that were read, with the hash of their pixels."""
    taught: set[str] = field(default_factory=set)
    """Hashes of all references that were drawn."""
    doubled: int = 0
    """Draws in which a reference is a copy of another."""

    def report(self, source: str, what: str) -> None:
        """Note a problem, once."""
        problem = Problem(self.unit.category.name, source, what)
        if problem not in self.problems:
            self.problems.append(problem)


def measure(
    unit: Unit,
    contest: Contest,
    step: Step = lambda _: None,
    look: Look = lambda _category, _entrant: None,
) -> Measured:
    """Teach and measure every draw with every variant.

    `look` sees each entrant once it is measured, before what it found is let go. A picture that
    cannot be read or scored is a problem of the result, and left out. So is a draw whose
    references cannot be taught.
    """
    return _Measuring(unit, contest, step, look).run()


@dataclass(frozen=True)
class Peak:
    """The strongest patch of a picture, and the reference it was compared with."""

    row: int
    col: int
    reference: str
    similarity: float


@dataclass(frozen=True)
class Found:
    """What is kept of a scored picture until its map is measured."""

    picture: TestPicture
    score: float
    energy: Map
    scored: Mask
    placement: Placement
    peak: Peak


@dataclass
class Entrant:
    """One variant, taught by one draw."""

    variant: Variant
    shots: Shots
    seed: int
    product: Product
    patch_mask: PatchMask
    reader: EnergyReader
    references: Sequence[str]
    origin: NDArray[np.int32]
    """Of every patch of the bank, which of the references it comes from."""
    size: int
    """Bytes of its bank as float32, as scorers hold it, and of the grids of all pictures."""
    found: list[Found] = field(default_factory=list)

    def peak(self, found: PictureEnergy) -> Peak:
        """Where a picture's energy is highest, of those patches that were scored."""
        inspected = np.where(found.scored, found.energy, -1)
        row, col = map(int, np.unravel_index(int(np.argmax(inspected)), inspected.shape))
        reference = self.references[int(self.origin[found.anchor[row, col]])]
        return Peak(row, col, reference, float(found.similarity[row, col]))

    def keep(self, picture: TestPicture, found: PictureEnergy) -> None:
        """Keep what is needed of a scored picture."""
        grids = (found.energy, found.scored, found.placement)
        self.found.append(Found(picture, found.score, *grids, self.peak(found)))


class _Measuring:
    """A unit being measured."""

    def __init__(self, unit: Unit, contest: Contest, step: Step, look: Look) -> None:
        self._unit = unit
        self._category = unit.category
        self._contest = contest
        self._result = Measured(unit)
        self._step = step
        self._look = look
        self._teacher = Teacher(contest.bundle, contest.engine)
        self._unmasked: set[TestPicture] = set()  # left out of the pixel figures

    def run(self) -> Measured:
        """As many entrants at a time as memory allows; at least one."""
        waiting: list[Entrant] = []
        size = 0
        for shots, seed in self._unit.draws:
            draft = self._teach(shots, seed)
            if draft is None:
                continue
            near = _near(draft)
            for variant in self._contest.variants:
                try:
                    entrant = self._enter(variant, shots, seed, draft, near)
                except EnvironmentMissingError:
                    raise  # it would be missing for every draw
                except AnocoError as error:
                    run = f"{variant.name}, {shots} shots of seed {seed}"
                    self._result.report("", f"{run} is left out: {error}")
                    continue
                if waiting and size + entrant.size > MEMORY_BYTES:
                    self._measure(waiting)
                    waiting, size = [], 0
                waiting.append(entrant)
                size += entrant.size
        if waiting:
            self._measure(waiting)
        return self._result

    def _teach(self, shots: Shots, seed: int) -> Draft | None:
        settings, like = self._contest.settings, self._contest.like
        if like is None:  # a product says which shapes it takes; a data set is what it is
            settings = replace(settings, fields={"any_size": True, **settings.fields})
        paths = self._category.draw(None if shots == "full" else shots, seed)
        try:
            pictures = [NewPicture.from_file(path) for path in paths]
            draft = self._teacher.draft(pictures, settings, like=like)
        except AnocoError as error:
            what = f"{shots} shots of seed {seed} are left out: {error}"
            self._result.report("", what)
            return None
        self._result.taught |= {reference.pixels for reference in draft.product.references}
        self._result.doubled += len(draft.product.references) < len(pictures)
        return draft

    def _enter(
        self, variant: Variant, shots: Shots, seed: int, draft: Draft, near: Near
    ) -> Entrant:
        contest = self._contest
        assert draft.bank is not None
        bank, window = draft.bank.references, contest.bundle.manifest.input
        product = variant.product(draft.product)
        scorer = variant.scorer(bank, near, product, contest.scorer, contest.threads)
        reader = EnergyReader(contest.engine, window, product, draft.patch_mask, scorer)
        canvas = reader.tiling.contract
        grids = len(self._category.test) * canvas.rows * canvas.cols
        size = 4 * (bank.features.size + grids)
        names = [reference.name for reference in product.references]
        origin = draft.bank.reference
        return Entrant(variant, shots, seed, product, draft.patch_mask, reader, names, origin, size)

    def _measure(self, entrants: Sequence[Entrant]) -> None:
        """Each picture once through all of them; then their maps, one entrant after the other,
        because the pixels of many would fill the disk."""
        category, test, batch = self._category.name, self._category.test, self._contest.batch
        for start in range(0, len(test), batch):
            self._score(entrants, self._read(test[start : start + batch]))
        with ThreadPoolExecutor(min(_PIXEL_THREADS, cores())) as pool:
            pixels = list(pool.map(self._pixel_figures_or_none, entrants))
        for entrant, of_pixels in zip(entrants, pixels, strict=True):
            figures = {**_image_figures(entrant.found), **of_pixels}
            shots, seed, name = entrant.shots, entrant.seed, entrant.variant.name
            row = Row(self._unit.dataset, category, shots, seed, name, figures)
            self._result.rows.append(row)
            for found in entrant.found:
                source, defect = str(found.picture.path), found.picture.defect
                score = PictureScore(category, source, defect, name, shots, seed, found.score)
                self._result.pictures.append(score)
            self._look(category, entrant)

    def _read(self, pictures: Sequence[TestPicture]) -> list[tuple[TestPicture, Pixels]]:
        read = []
        for picture in pictures:
            try:
                rgb = read_picture(picture.path)
            except PictureError as error:
                self._report(picture, error)
                continue
            read.append((picture, rgb))
            if picture.path not in self._result.tested:
                self._result.tested[picture.path] = sha256_bytes(rgb.tobytes())
                self._check_mask(picture, (rgb.shape[1], rgb.shape[0]))
        return read

    def _check_mask(self, picture: TestPicture, size: tuple[int, int]) -> None:
        if picture.defect is None:
            return
        try:
            if picture.mask is None:
                raise PictureError(f"{picture.path} has no mask", hint="draw where the defect is")
            read_mask(picture.mask, size)
        except PictureError as error:
            self._unmasked.add(picture)
            if self._category.has_masks:
                self._report(picture, error, "left out of the pixel figures: ")

    def _score(
        self, entrants: Sequence[Entrant], read: Sequence[tuple[TestPicture, Pixels]]
    ) -> None:
        """Picture by picture, so that scorers of one bank find in `Near` what they share."""
        seen: dict[str, list[PatchFeatures]] = {}
        for entrant in entrants:
            if (canvas := _canvas(entrant)) not in seen:
                seen[canvas] = entrant.reader.extract([rgb for _, rgb in read])
        for number, (picture, rgb) in enumerate(read):
            for entrant in entrants:
                try:
                    entrant.patch_mask.check_size(rgb.shape[1], rgb.shape[0], str(picture.path))
                    found = entrant.reader.score(seen[_canvas(entrant)][number])
                    if not math.isfinite(found.score):
                        raise ScoringError(f"{entrant.variant.name} gives no number")
                except AnocoError as error:
                    self._report(picture, error)
                else:
                    entrant.keep(picture, found)
                self._step(self._category.name)

    def _pixel_figures_or_none(self, entrant: Entrant) -> Figures:
        """A disk without room costs these figures, not all that was measured."""
        try:
            return self._pixel_figures(entrant)
        except StorageError as error:
            run = f"{entrant.variant.name}, {entrant.shots} shots of seed {entrant.seed}"
            what = f"no pixel figures of {run}: {error.what}; set TMPDIR to a folder with room"
            self._result.report("", what)
            return dict.fromkeys(PIXEL_METRICS)

    def _pixel_figures(self, entrant: Entrant) -> Figures:
        found = [f for f in entrant.found if f.picture not in self._unmasked]
        if not any(f.picture.defect for f in found):
            return dict.fromkeys(PIXEL_METRICS)
        to_map = MapMaker(entrant.reader.tiling.contract)
        with PixelMetrics() as metrics:
            for one in found:
                mask = None
                if one.picture.mask is not None:
                    size = (one.placement.picture_width, one.placement.picture_height)
                    mask = read_mask(one.picture.mask, size)
                metrics.add(enlarge(to_map(one.energy, one.scored), one.placement), mask)
                self._step(self._category.name)
            result = metrics.result()
        return dict(zip(PIXEL_METRICS, (result.auroc, result.pro, result.f1_max), strict=True))

    def _report(self, picture: TestPicture, error: AnocoError, effect: str = "") -> None:
        self._result.report(str(picture.path), f"{effect}{error}")


def _image_figures(found: Sequence[Found]) -> Figures:
    scores = [one.score for one in found]
    anomalous = [one.picture.defect is not None for one in found]
    if all(anomalous) or not any(anomalous):
        return dict.fromkeys(IMAGE_METRICS)
    values = (metric(scores, anomalous) for metric in (auroc, aupr, f1_max))
    return dict(zip(IMAGE_METRICS, values, strict=True))


def _near(draft: Draft) -> Near:
    """What the scorers of a draw share; each view of a reference is a picture of its own."""
    assert draft.bank is not None
    pictures = draft.bank.reference.astype(np.int64) * (int(draft.bank.view.max()) + 1)
    return Near(draft.bank.references, pictures + draft.bank.view)


def _canvas(entrant: Entrant) -> str:
    """Entrants whose pictures are prepared alike have the same."""
    tiles = entrant.product.tiles
    return "" if tiles is None else tiles.model_dump_json()
