"""One unit of an evaluation: a category, taught with some draws of its references, and measured.

A unit depends on no other unit, and its result holds plain values. Units may therefore run side by
side, in other processes or on other machines; `runner.merge` puts their results together.
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
from anoco_edge.bundle.bank import Bank
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
from anoco_edge_calibration.evaluation.dataset import Category, TestPicture
from anoco_edge_calibration.evaluation.defect_regions import DefectRegions
from anoco_edge_calibration.evaluation.metrics import aupr, auroc, f1_max
from anoco_edge_calibration.evaluation.pixel_metrics import HELD, MOST_VALUES, PixelMetrics
from anoco_edge_calibration.evaluation.prompts import BundlePrompts
from anoco_edge_calibration.evaluation.scorers import NeighborCache, WindowBank
from anoco_edge_calibration.evaluation.tables import (
    IMAGE_METRICS,
    PIXEL_METRICS,
    EvaluationRow,
    Figures,
    Shots,
)
from anoco_edge_calibration.evaluation.variants import Variant

Step = Callable[[str], None]
Observer = Callable[[str, "VariantRun"], None]
Draw = tuple[Shots, int]
"""The number of references, and the seed that draws them."""

# Several variant runs score side by side, so that each picture is decoded once for all of them, as
# long as their banks and grids together take no more memory than this.
MEMORY_BYTES = 512_000_000
DRAFT_BYTES = 256_000_000  # of banks that are kept, so that later draws need not build them again
# The maps of so many variant runs are measured side by side. They share the memory for pixels and
# for counting them, whatever the number of pictures: one that has all of it takes 560 MB with 64
# million pixels, of which 4 million are defective.
_PIXEL_THREADS = 4


@dataclass(frozen=True)
class EvaluationUnit:
    """A category and the draws of its references that are measured on it."""

    dataset: str
    category: Category
    draws: tuple[Draw, ...]


@dataclass(frozen=True)
class EvaluationSetup:
    """What all units share: the bundle, the scorers, and how references are taught."""

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
    """The score that one scorer gave one test picture."""

    category: str
    source: str
    defect: str | None
    scorer: str
    shots: Shots
    seed: int
    score: float


@dataclass(frozen=True)
class EvaluationProblem:
    """Something that could not be measured while the rest was."""

    category: str
    source: str
    what: str


@dataclass
class UnitResult:
    """The figures of one unit, and what could not be measured. It can be pickled."""

    unit: EvaluationUnit
    rows: list[EvaluationRow] = field(default_factory=list)
    pictures: list[PictureScore] = field(default_factory=list)
    problems: list[EvaluationProblem] = field(default_factory=list)
    tested: dict[Path, str] = field(default_factory=dict)
    """Every test picture that was read, with the hash of its pixels."""
    taught: set[str] = field(default_factory=set)
    """The hashes of the pixels of all references that were drawn."""
    doubled: int = 0
    """The number of draws in which one reference is a copy of another."""

    def report(self, source: str, what: str) -> None:
        """Record a problem unless it is recorded already."""
        problem = EvaluationProblem(self.unit.category.name, source, what)
        if problem not in self.problems:
            self.problems.append(problem)


def measure_unit(
    unit: EvaluationUnit,
    setup: EvaluationSetup,
    step: Step = lambda _: None,
    observe: Observer = lambda _category, _variant_run: None,
) -> UnitResult:
    """Teach every draw, and measure it with every variant.

    `observe` is called with each variant run after it is measured and before its grids are
    discarded. A picture that cannot be read or scored is left out and becomes a problem of the
    result, as does a draw whose references cannot be enrolled.
    """
    return _UnitMeasurement(unit, setup, step, observe).run()


@dataclass(frozen=True)
class Peak:
    """The patch of a picture with the highest energy, and the reference it resembles most."""

    row: int
    col: int
    reference: str
    similarity: float


@dataclass(frozen=True)
class ScoredPicture:
    """What is kept of a test picture from its scoring until its map is measured."""

    picture: TestPicture
    score: float
    energy: Map
    scored: Mask
    placement: Placement
    peak: Peak


@dataclass
class VariantRun:
    """One variant of a scorer, taught with one draw of references."""

    variant: Variant
    shots: Shots
    seed: int
    product: Product
    patch_mask: PatchMask
    reader: EnergyReader
    references: Sequence[str]
    origin: NDArray[np.int32]
    """For every patch of the bank, the index of the reference it comes from."""
    size: int
    """Bytes of the bank, which scorers hold as float32, and of the grids of all pictures."""
    found: list[ScoredPicture] = field(default_factory=list)

    def peak(self, found: PictureEnergy) -> Peak:
        """Return where the energy of a picture is highest, among the patches that were scored."""
        inspected = np.where(found.scored, found.energy, -1)
        row, col = map(int, np.unravel_index(int(np.argmax(inspected)), inspected.shape))
        reference = self.references[int(self.origin[found.anchor[row, col]])]
        return Peak(row, col, reference, float(found.similarity[row, col]))

    def keep(self, picture: TestPicture, found: PictureEnergy) -> None:
        """Keep what the pixel figures and the report need of a scored picture."""
        grids = (found.energy, found.scored, found.placement)
        self.found.append(ScoredPicture(picture, found.score, *grids, self.peak(found)))


class _UnitMeasurement:
    """The state of one call of `measure_unit`."""

    def __init__(
        self, unit: EvaluationUnit, setup: EvaluationSetup, step: Step, observe: Observer
    ) -> None:
        self._unit = unit
        self._category = unit.category
        self._setup = setup
        self._result = UnitResult(unit)
        self._step = step
        self._observe = observe
        self._teacher = Teacher(setup.bundle, setup.engine)
        self._drafts: list[Draft] = []
        self._draft_bytes = 0
        self._unmasked: set[TestPicture] = set()  # these are left out of the pixel figures
        self._regions: dict[TestPicture, DefectRegions] = {}  # for all variant runs
        prompted = any(variant.prompted for variant in setup.variants)
        self._prompts = BundlePrompts.read(setup.bundle) if prompted else None

    def run(self) -> UnitResult:
        """Measure as many variant runs at a time as memory allows, and at least one."""
        waiting: list[VariantRun] = []
        size = 0
        for shots, seed in self._unit.draws:
            draft = self._teach(shots, seed)
            if draft is None:
                continue
            neighbor_cache = _neighbor_cache(draft, self._window_bank(_bank(draft)))
            readers: dict[str, EnergyReader] = {}
            for variant in self._setup.variants:
                try:
                    variant_run = self._enter(variant, shots, seed, draft, neighbor_cache, readers)
                except EnvironmentMissingError:
                    raise  # every other draw would fail for the same reason
                except AnocoError as error:
                    run = f"{variant.name}, {shots} shots of seed {seed}"
                    self._result.report("", f"{run} is left out: {error}")
                    continue
                if waiting and size + variant_run.size > MEMORY_BYTES:
                    self._measure(waiting)
                    waiting, size = [], 0
                waiting.append(variant_run)
                size += variant_run.size
        if waiting:
            self._measure(waiting)
        return self._result

    def _teach(self, shots: Shots, seed: int) -> Draft | None:
        settings, like = self._setup.settings, self._setup.like
        if like is None:  # no product restricts the sizes, so pictures of all sizes are taken
            settings = replace(settings, fields={"any_size": True, **settings.fields})
        paths = self._category.draw(None if shots == "full" else shots, seed)
        try:
            pictures = [NewPicture.from_file(path) for path in paths]
            draft = self._teacher.draft(pictures, settings, like=like, earlier=self._drafts)
        except AnocoError as error:
            what = f"{shots} shots of seed {seed} are left out: {error}"
            self._result.report("", what)
            return None
        self._keep(draft)
        self._result.taught |= {reference.pixels for reference in draft.product.references}
        self._result.doubled += len(draft.product.references) < len(pictures)
        return draft

    def _window_bank(self, bank: Bank) -> WindowBank | None:
        if self._prompts is None:
            return None
        text = self._prompts.about(self._category.name)
        return WindowBank(self._prompts.layout, text, bank.row, bank.col)

    def _keep(self, draft: Draft) -> None:
        """Keep a draft for the draws that follow, which take some of the same references."""
        size = _bank(draft).references.features.nbytes
        if self._draft_bytes + size <= DRAFT_BYTES:
            self._drafts.append(draft)
            self._draft_bytes += size

    def _enter(
        self,
        variant: Variant,
        shots: Shots,
        seed: int,
        draft: Draft,
        neighbor_cache: NeighborCache,
        readers: dict[str, EnergyReader],
    ) -> VariantRun:
        """Make a run of a variant; variants that differ in pooling alone share one of `readers`."""
        setup = self._setup
        built = _bank(draft)
        bank, window = built.references, setup.bundle.manifest.input
        product = variant.product(draft.product)
        unpooled = variant.without("pooling").name
        if unpooled not in readers:
            scorer = variant.scorer(bank, neighbor_cache, product, setup.scorer, setup.threads)
            readers[unpooled] = EnergyReader(
                setup.engine, window, product, draft.patch_mask, scorer
            )
        reader = readers[unpooled]
        canvas = reader.tiling.contract
        grids = len(self._category.test) * canvas.rows * canvas.cols
        size = 4 * (bank.features.size + grids)
        names = [reference.name for reference in product.references]
        origin = built.reference
        return VariantRun(
            variant, shots, seed, product, draft.patch_mask, reader, names, origin, size
        )

    def _measure(self, variant_runs: Sequence[VariantRun]) -> None:
        """Score each picture once with all variant runs, then count the pixels of their maps.

        The maps are counted run by run, because the pixels of many would fill the disk.
        """
        category, test, batch = self._category.name, self._category.test, self._setup.batch
        for start in range(0, len(test), batch):
            self._score(variant_runs, self._read(test[start : start + batch]))
        # Runs that share a reader have the same maps.
        measured = {variant_run.reader: variant_run for variant_run in reversed(variant_runs)}
        threads = min(_PIXEL_THREADS, cores(), len(measured))
        share = _PIXEL_THREADS // threads
        with ThreadPoolExecutor(threads) as pool:
            of_pixels = pool.map(
                lambda run: self._pixel_figures_or_none(run, share), measured.values()
            )
            pixels = dict(zip(measured, of_pixels, strict=True))
        for variant_run in variant_runs:
            if measured[variant_run.reader] is not variant_run:
                for _ in variant_run.found:
                    self._step(category)
            figures = {**_image_figures(variant_run.found), **pixels[variant_run.reader]}
            shots, seed, name = variant_run.shots, variant_run.seed, variant_run.variant.name
            row = EvaluationRow(self._unit.dataset, category, shots, seed, name, figures)
            self._result.rows.append(row)
            for found in variant_run.found:
                source, defect = str(found.picture.path), found.picture.defect
                score = PictureScore(category, source, defect, name, shots, seed, found.score)
                self._result.pictures.append(score)
            self._observe(category, variant_run)

    def _read(self, pictures: Sequence[TestPicture]) -> list[tuple[TestPicture, Pixels]]:
        read = []
        for picture in pictures:
            try:
                rgb = read_picture(picture.path)
            except PictureError as error:
                self._report(picture, error)
                continue
            read.append((picture, picture.turn(rgb)))
            if picture.path not in self._result.tested:
                self._result.tested[picture.path] = sha256_bytes(rgb.tobytes())
                self._check_mask(picture, (rgb.shape[1], rgb.shape[0]))
        return read

    def _check_mask(self, picture: TestPicture, size: tuple[int, int]) -> None:
        if picture.defect is None:
            return
        try:
            self._read_regions(picture, size)
        except PictureError as error:
            self._unmasked.add(picture)
            if self._category.has_masks:
                self._report(picture, error, "left out of the pixel figures: ")

    def _read_regions(self, picture: TestPicture, size: tuple[int, int]) -> DefectRegions:
        """Return the defects of a picture, whose mask is read once."""
        if picture not in self._regions:
            self._regions[picture] = DefectRegions.from_mask(picture.read_mask(size))
        return self._regions[picture]

    def _score(
        self, variant_runs: Sequence[VariantRun], read: Sequence[tuple[TestPicture, Pixels]]
    ) -> None:
        """Score picture by picture, so that scorers of one bank share a `NeighborCache`."""
        features: dict[str, list[PatchFeatures]] = {}
        for variant_run in variant_runs:
            if (key := _tiling_key(variant_run)) not in features:
                features[key] = variant_run.reader.extract([rgb for _, rgb in read])
        for number, (picture, rgb) in enumerate(read):
            energies: dict[EnergyReader, PictureEnergy] = {}
            for variant_run in variant_runs:
                reader = variant_run.reader
                try:
                    variant_run.patch_mask.check_size(rgb.shape[1], rgb.shape[0], str(picture.path))
                    if (known := energies.get(reader)) is not None:
                        pooling = variant_run.product.pooling
                        found = replace(known, score=known.pooled(pooling))
                    else:
                        found = reader.score(features[_tiling_key(variant_run)][number])
                        energies[reader] = found
                    if not math.isfinite(found.score):
                        raise ScoringError(
                            f"{variant_run.variant.name} gives no number",
                            hint="leave this scorer out, or check its parameters",
                        )
                except AnocoError as error:
                    self._report(picture, error)
                else:
                    variant_run.keep(picture, found)
                self._step(self._category.name)

    def _pixel_figures_or_none(self, variant_run: VariantRun, share: int) -> Figures:
        """Return no pixel figures when the disk is full; the image figures are kept."""
        try:
            return self._pixel_figures(variant_run, share)
        except StorageError as error:
            run = (
                f"{variant_run.variant.name}, {variant_run.shots} shots of seed {variant_run.seed}"
            )
            what = f"no pixel figures of {run}: {error.what}; set TMPDIR to a folder with room"
            self._result.report("", what)
            return dict.fromkeys(PIXEL_METRICS)

    def _pixel_figures(self, variant_run: VariantRun, share: int) -> Figures:
        """Measure the maps of a run in `share` times the memory that a thread has at least."""
        found = [f for f in variant_run.found if f.picture not in self._unmasked]
        if not any(f.picture.defect for f in found):
            return dict.fromkeys(PIXEL_METRICS)
        to_map = MapMaker(variant_run.reader.tiling.contract)
        with PixelMetrics(held=share * HELD, most_values=share * MOST_VALUES) as metrics:
            for one in found:
                regions = None
                if one.picture.mask is not None:
                    size = (one.placement.picture_width, one.placement.picture_height)
                    regions = self._read_regions(one.picture, size)
                metrics.add(enlarge(to_map(one.energy, one.scored), one.placement), regions)
                self._step(self._category.name)
            result = metrics.result()
        return dict(zip(PIXEL_METRICS, (result.auroc, result.pro, result.f1_max), strict=True))

    def _report(self, picture: TestPicture, error: AnocoError, effect: str = "") -> None:
        self._result.report(str(picture.path), f"{effect}{error}")


def _image_figures(found: Sequence[ScoredPicture]) -> Figures:
    scores = [one.score for one in found]
    anomalous = [one.picture.defect is not None for one in found]
    if all(anomalous) or not any(anomalous):
        return dict.fromkeys(IMAGE_METRICS)
    values = (metric(scores, anomalous) for metric in (auroc, aupr, f1_max))
    return dict(zip(IMAGE_METRICS, values, strict=True))


def _neighbor_cache(draft: Draft, windows: WindowBank | None) -> NeighborCache:
    """Make the cache that the scorers of a draw share.

    Each view of a reference counts as a picture of its own.
    """
    bank = _bank(draft)
    pictures = bank.reference.astype(np.int64) * (int(bank.view.max()) + 1)
    row, col = bank.row, bank.col
    border = (row == 0) | (row == row.max()) | (col == 0) | (col == col.max())
    return NeighborCache(bank.references, pictures + bank.view, border & (bank.view == 0), windows)


def _bank(draft: Draft) -> Bank:
    """Return the bank of a draft; a draft that was taught with references always has one."""
    if draft.bank is None:
        raise ScoringError("the draft has no references", hint="teach it with at least one picture")
    return draft.bank


def _tiling_key(variant_run: VariantRun) -> str:
    """Return a key that is equal for variant runs whose pictures are prepared in the same way."""
    tiles = variant_run.product.tiles
    return "" if tiles is None else tiles.model_dump_json()
