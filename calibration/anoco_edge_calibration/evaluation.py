"""How well scorers find defects on a data set, taught with few or all of its good parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.checksum import sha256_bytes
from anoco_edge.energy import EnergyReader, PictureEnergy
from anoco_edge.engines import Engine
from anoco_edge.errors import AnocoError, PictureError, ScoringError, StorageError, UsageError
from anoco_edge.geometry import Geometry
from anoco_edge.machine import cores
from anoco_edge.maps import Map, MapMaker, enlarge
from anoco_edge.pictures import read_picture
from anoco_edge.preprocess import Mask, Pixels, Placement
from anoco_edge.teaching import NO_CHANGE, Draft, NewPicture, Settings, Teacher
from anoco_edge_calibration.dataset import Category, DataSet, TestPicture, read_mask
from anoco_edge_calibration.metrics import aupr, auroc, f1_max
from anoco_edge_calibration.pixel_metrics import PixelMetrics
from anoco_edge_calibration.tables import (
    IMAGE_METRICS,
    PIXEL_METRICS,
    Figures,
    Row,
    Shots,
    incomplete_means,
    mean_rows,
)
from anoco_edge_calibration.variants import Variant

Step = Callable[[str], None]
Look = Callable[[str, "Entrant"], None]

# Scorers of several draws run side by side, so that a picture is decoded once for all of them, as
# long as their banks and grids stay within this.
MEMORY_BYTES = 512_000_000
_PIXEL_THREADS = 4  # counting takes 100 MB each, whatever the number of pictures


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
class Evaluation:
    """Figures, the scores behind them, what is missing from them and why."""

    rows: list[Row] = field(default_factory=list)
    pictures: list[PictureScore] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def report(self, category: str, source: str, what: str) -> None:
        """Note a problem, once."""
        problem = Problem(category, source, what)
        if problem not in self.problems:
            self.problems.append(problem)


@dataclass(frozen=True)
class Contest:
    """Everything but the data: who scores, how often, and how the references are taught."""

    bundle: Bundle
    engine: Engine
    variants: Sequence[Variant]
    shots: Sequence[Shots] = (1,)
    seeds: int = 1
    settings: Settings = NO_CHANGE
    like: Product | None = None
    scorer: str = "auto"
    threads: int = 0
    batch: int = 4

    def draws(self) -> list[tuple[Shots, int]]:
        """Shots and seed of every draw; all pictures can be drawn in one way only."""
        return [
            (shots, seed)
            for shots in self.shots
            for seed in range(1 if shots == "full" else self.seeds)
        ]

    def steps(self, dataset: DataSet) -> int:
        """How often `evaluate` will call its `step` at most."""
        pictures = sum(len(category.test) for category in dataset.categories)
        return 2 * pictures * len(self.draws()) * len(self.variants)


def evaluate(
    dataset: DataSet,
    contest: Contest,
    step: Step = lambda _: None,
    look: Look = lambda _category, _entrant: None,
) -> Evaluation:
    """Teach and measure every category, draw and variant.

    `look` sees each entrant of a category once it is measured, before what it found is let go.
    A picture that cannot be read or scored is a problem of the result, and left out. So is a draw
    whose references cannot be taught, and a category in which nothing can be measured.
    """
    _check_shots(dataset, contest)
    result = Evaluation()
    measured = [category for category in dataset.categories if _measurable(category, result)]
    if not measured:
        raise UsageError(
            f"{dataset.name} cannot be measured: {result.problems[0].what}",
            hint="test/ needs good and defective pictures",
        )
    bare = [category.name for category in measured if not category.has_masks]
    if bare:
        result.remarks.append(f"no pixel figures for {', '.join(bare)}: there are no masks")
    for category in measured:
        _Measuring(dataset.name, category, contest, result, step, look).run()
    names = [category.name for category in dataset.categories]
    result.remarks += incomplete_means(result.rows, names)
    result.rows += mean_rows(result.rows)
    return result


def _check_shots(dataset: DataSet, contest: Contest) -> None:
    """Before minutes of work."""
    most = max((shots for shots in contest.shots if shots != "full"), default=0)
    for category in dataset.categories:
        if most > len(category.train):
            raise UsageError(
                f"{most} shots were asked for, {category.name} has {len(category.train)} "
                "training pictures",
                hint="give fewer --shots, or 'full', or leave it out with --categories",
            )


def _measurable(category: Category, result: Evaluation) -> bool:
    if not category.has_both:
        lacking = "good" if any(p.defect for p in category.test) else "defective"
        result.report(category.name, "", f"{category.name} has no {lacking} test pictures")
    return category.has_both or category.has_masks


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
    counted: Mask
    placement: Placement
    peak: Peak


@dataclass
class Entrant:
    """One variant, taught by one draw."""

    variant: Variant
    shots: Shots
    seed: int
    geometry: Geometry
    reader: EnergyReader
    references: Sequence[str]
    origin: NDArray[np.int32]
    """Of every patch of the bank, which of the references it comes from."""
    size: int
    """Bytes of its bank as float32, as scorers hold it, and of the grids of all pictures."""
    found: list[Found] = field(default_factory=list)

    def peak(self, found: PictureEnergy) -> Peak:
        """Where a picture's energy is highest, of those patches that were scored."""
        inspected = np.where(found.counted, found.energy, -1)
        row, col = map(int, np.unravel_index(int(np.argmax(inspected)), inspected.shape))
        reference = self.references[int(self.origin[found.anchor[row, col]])]
        return Peak(row, col, reference, float(found.similarity[row, col]))


class _Measuring:
    """Measures one category and adds to the result."""

    def __init__(
        self,
        dataset: str,
        category: Category,
        contest: Contest,
        result: Evaluation,
        step: Step,
        look: Look,
    ) -> None:
        self._dataset = dataset
        self._category = category
        self._contest = contest
        self._result = result
        self._step = step
        self._look = look
        self._teacher = Teacher(contest.bundle, contest.engine)
        self._seen: dict[TestPicture, str] = {}  # with the hash of its pixels
        self._taught: set[str] = set()  # hashes of all references that were drawn
        self._doubled = 0  # draws in which a reference is a copy of another
        self._unmasked: set[TestPicture] = set()  # left out of the pixel figures

    def run(self) -> None:
        """As many entrants at a time as memory allows; at least one."""
        waiting: list[Entrant] = []
        size = 0
        for shots, seed in self._contest.draws():
            draft = self._teach(shots, seed)
            if draft is None:
                continue
            for variant in self._contest.variants:
                entrant = self._enter(variant, shots, seed, draft)
                if waiting and size + entrant.size > MEMORY_BYTES:
                    self._measure(waiting)
                    waiting, size = [], 0
                waiting.append(entrant)
                size += entrant.size
        if waiting:
            self._measure(waiting)
        self._remark_copies()

    def _remark_copies(self) -> None:
        """A known picture flatters the figures, a doubled reference teaches nothing."""
        name, remarks = self._category.name, self._result.remarks
        copies = [p.path for p, pixels in self._seen.items() if pixels in self._taught]
        if copies:
            share = f"{len(copies)} of {len(self._seen)} test pictures of {name}"
            remarks.append(f"{share} are copies of references, {copies[0]} for one")
        if self._doubled:
            share = f"{self._doubled} of {len(self._contest.draws())} draws of {name}"
            fewer = "the bank holds fewer pictures than shots"
            remarks.append(f"{share} have references that are copies of each other: {fewer}")

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
            self._result.report(self._category.name, "", what)
            return None
        self._taught |= {reference.pixels for reference in draft.product.references}
        self._doubled += len(draft.product.references) < len(pictures)
        return draft

    def _enter(self, variant: Variant, shots: Shots, seed: int, draft: Draft) -> Entrant:
        contest = self._contest
        assert draft.bank is not None
        bank, window = draft.bank.references, contest.bundle.manifest.input
        product = variant.product(draft.product)
        scorer = variant.scorer(bank, product, contest.scorer, contest.threads)
        reader = EnergyReader(contest.engine, window, product, draft.geometry, scorer)
        canvas = reader.canvas.contract
        grids = len(self._category.test) * canvas.rows * canvas.cols
        size = 4 * (bank.features.size + grids)
        names = [reference.name for reference in product.references]
        origin = draft.bank.reference
        return Entrant(variant, shots, seed, draft.geometry, reader, names, origin, size)

    def _measure(self, entrants: Sequence[Entrant]) -> None:
        """Each picture once through all of them; then their maps, one entrant after the other,
        because the pixels of many would fill the disk."""
        category, test, batch = self._category.name, self._category.test, self._contest.batch
        for start in range(0, len(test), batch):
            read = self._read(test[start : start + batch])
            for entrant in entrants:
                self._score(entrant, read)
        with ThreadPoolExecutor(min(_PIXEL_THREADS, cores())) as pool:
            pixels = list(pool.map(self._pixel_figures_or_none, entrants))
        for entrant, of_pixels in zip(entrants, pixels, strict=True):
            figures = {**_image_figures(entrant.found), **of_pixels}
            shots, seed, name = entrant.shots, entrant.seed, entrant.variant.name
            row = Row(self._dataset, category, shots, seed, name, figures)
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
            if picture not in self._seen:
                self._seen[picture] = sha256_bytes(rgb.tobytes())
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

    def _score(self, entrant: Entrant, read: Sequence[tuple[TestPicture, Pixels]]) -> None:
        fitting = []
        for picture, rgb in read:
            try:
                entrant.geometry.check_size(rgb.shape[1], rgb.shape[0], str(picture.path))
                fitting.append((picture, rgb))
            except PictureError as error:
                self._report(picture, error)
        energies = entrant.reader.read([rgb for _, rgb in fitting])
        for (picture, _), found in zip(fitting, energies, strict=True):
            if isinstance(found, AnocoError):
                self._report(picture, found)
            elif not math.isfinite(found.score):
                self._report(picture, ScoringError(f"{entrant.variant.name} gives no number"))
            else:
                grids = (found.energy, found.counted, found.placement)
                peak = entrant.peak(found)
                entrant.found.append(Found(picture, found.score, *grids, peak))
            self._step(self._category.name)

    def _pixel_figures_or_none(self, entrant: Entrant) -> Figures:
        """A disk without room costs these figures, not all that was measured."""
        try:
            return self._pixel_figures(entrant)
        except StorageError as error:
            run = f"{entrant.variant.name}, {entrant.shots} shots of seed {entrant.seed}"
            what = f"no pixel figures of {run}: {error.what}; set TMPDIR to a folder with room"
            self._result.report(self._category.name, "", what)
            return dict.fromkeys(PIXEL_METRICS)

    def _pixel_figures(self, entrant: Entrant) -> Figures:
        found = [f for f in entrant.found if f.picture not in self._unmasked]
        if not any(f.picture.defect for f in found):
            return dict.fromkeys(PIXEL_METRICS)
        to_map = MapMaker(entrant.reader.canvas.contract)
        with PixelMetrics() as metrics:
            for one in found:
                mask = None
                if one.picture.mask is not None:
                    size = (one.placement.picture_width, one.placement.picture_height)
                    mask = read_mask(one.picture.mask, size)
                metrics.add(enlarge(to_map(one.energy, one.counted), one.placement), mask)
                self._step(self._category.name)
            result = metrics.result()
        return dict(zip(PIXEL_METRICS, (result.auroc, result.pro, result.f1_max), strict=True))

    def _report(self, picture: TestPicture, error: AnocoError, effect: str = "") -> None:
        self._result.report(self._category.name, str(picture.path), f"{effect}{error}")


def _image_figures(found: Sequence[Found]) -> Figures:
    scores = [one.score for one in found]
    anomalous = [one.picture.defect is not None for one in found]
    if all(anomalous) or not any(anomalous):
        return dict.fromkeys(IMAGE_METRICS)
    values = (metric(scores, anomalous) for metric in (auroc, aupr, f1_max))
    return dict(zip(IMAGE_METRICS, values, strict=True))
