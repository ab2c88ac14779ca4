"""Turns pictures into patch energies: preprocessing, engine, scorer, views and baseline.

Inspection, calibration and evaluation all score pictures through this module, so a threshold and
a verdict always rest on the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle.baseline import BaselineGrid
from anoco_edge.bundle.schema import Affine, Product
from anoco_edge.engines import DeviceEngine, Engine
from anoco_edge.errors import AnocoError, ScoringError
from anoco_edge.images.contract import InputContract
from anoco_edge.images.preprocess import Mask, Placement, prepare
from anoco_edge.pipeline.anomaly_map import Map
from anoco_edge.pipeline.augmentation import IDENTITY, average, warp
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.pipeline.tiling import Tiling
from anoco_edge.scoring import Scorer, Scores, pool
from anoco_edge.scoring.device_array import DeviceArray
from anoco_edge.scoring.pooling import Pooling
from anoco_edge.scoring.types import DeviceScorer, Floats, check_query

Pixels = NDArray[np.uint8]
_VIEWS_AT_ONCE = 4


@dataclass(frozen=True)
class PictureEnergy:
    """The energies of one picture, as grids with one entry for each patch.

    An entry is 0 (in `anchor`, -1) where no patch was scored; `stages` holds milliseconds.
    """

    placement: Placement
    scored: Mask
    energy: Map
    anchor: NDArray[np.int64]
    similarity: NDArray[np.float32]
    score: float
    stages: dict[str, float] = field(repr=False)

    def pooled(self, pooling: Pooling) -> float:
        """The score that the picture would have with this pooling."""
        return pool(self.energy, pooling, self.scored)


@dataclass(frozen=True)
class PatchFeatures:
    """A preprocessed picture and the features of its patches; `stages` holds milliseconds."""

    pixels: Pixels
    placement: Placement
    features: Floats = field(repr=False)
    stages: dict[str, float] = field(repr=False)


class EnergyReader:
    """Scores pictures of one product with one engine and one bank."""

    def __init__(
        self,
        engine: Engine,
        window: InputContract,
        product: Product,
        patch_mask: PatchMask,
        scorer: Scorer,
        baseline: BaselineGrid | None = None,
    ) -> None:
        self.tiling = Tiling(window, product.tiles)
        self._engine = engine
        self._patch_mask = patch_mask
        self._scorer = scorer
        self._baseline = baseline
        self._pooling = product.pooling
        self._views = product.views if product.tta == "paper" else ()
        # Features stay on the GPU if the engine and the scorer both support it. Tiles are joined on
        # the CPU, so a tiled product always brings its features there.
        self._on_device: tuple[DeviceEngine, DeviceScorer] | None = None
        if isinstance(engine, DeviceEngine) and isinstance(scorer, DeviceScorer):
            self._on_device = (engine, scorer) if self.tiling.windows == 1 else None

    def read(self, pictures: Sequence[Pixels]) -> list[PictureEnergy | AnocoError]:
        """Score pictures through one run of the engine.

        A picture that cannot be scored gives its error; the others are scored all the same.
        """
        if self._on_device is not None:
            return self._read_on_device(pictures)
        found: list[PictureEnergy | AnocoError] = []
        for patches in self.extract(pictures):
            try:
                found.append(self.score(patches))
            except AnocoError as error:
                found.append(error)
        return found

    def extract(self, pictures: Sequence[Pixels]) -> list[PatchFeatures]:
        """Extract patch features through one run of the engine, whose time is shared out evenly.

        Any reader with the same engine and tiling can score what this one has extracted.
        """
        if not pictures:
            return []
        start = time.perf_counter()
        prepared = [prepare(rgb, self.tiling.contract) for rgb in pictures]
        ready = time.perf_counter()
        features = self.tiling.features(self._engine, np.stack([pixels for pixels, _ in prepared]))
        share = 1000 / len(pictures)
        stages = {
            "preprocess": (ready - start) * share,
            "backbone": (time.perf_counter() - ready) * share,
        }
        return [
            PatchFeatures(pixels, placement, grid, dict(stages))
            for (pixels, placement), grid in zip(prepared, features, strict=True)
        ]

    def score(self, patches: PatchFeatures) -> PictureEnergy:
        """Score the extracted patches of one picture."""
        start = time.perf_counter()
        placement, stages = patches.placement, dict(patches.stages)
        mask = self._patch_mask.scored(placement)
        scores = self._score_rows(patches.features, np.flatnonzero(mask))
        stages["scoring"] = (time.perf_counter() - start) * 1000
        return self._finish(patches.pixels, placement, mask, scores, stages)

    def _read_on_device(self, pictures: Sequence[Pixels]) -> list[PictureEnergy | AnocoError]:
        if not pictures:
            return []
        start = time.perf_counter()
        prepared = [prepare(rgb, self.tiling.contract) for rgb in pictures]
        ready = (time.perf_counter() - start) * 1000 / len(pictures)
        masks = [self._mask_or_error(placement) for _, placement in prepared]
        outcomes = self._score_all(np.stack([pixels for pixels, _ in prepared]), masks)
        found: list[PictureEnergy | AnocoError] = []
        for (pixels, placement), mask, outcome in zip(prepared, masks, outcomes, strict=True):
            if isinstance(mask, AnocoError):
                found.append(mask)
                continue
            stages = {"preprocess": ready, "backbone": outcome.backbone, "scoring": outcome.scoring}
            try:
                found.append(self._finish(pixels, placement, mask, outcome.scores(), stages))
            except AnocoError as error:
                found.append(error)
        return found

    def _mask_or_error(self, placement: Placement) -> Mask | AnocoError:
        try:
            return self._patch_mask.scored(placement)
        except AnocoError as error:  # the picture is so thin that no patch is left
            return error

    def _score_all(
        self, pixels: Pixels, masks: Sequence[Mask | AnocoError]
    ) -> list[_ScoringOutcome]:
        """Run the engine and the scorer on prepared pictures.

        The next run of the engine overwrites features on a GPU, so everything that needs them
        happens here.
        """
        outcomes: list[_ScoringOutcome] = []
        at_once = self._on_device[0].max_batch if self._on_device else len(pixels)
        for first in range(0, len(pixels), at_once):
            some = slice(first, first + at_once)
            start = time.perf_counter()
            with self._features(pixels[some]) as features:
                backbone = (time.perf_counter() - start) * 1000 / len(features)
                for mask, grid in zip(masks[some], features, strict=True):
                    start = time.perf_counter()
                    scores = self._score(mask, grid)
                    scoring = (time.perf_counter() - start) * 1000
                    outcomes.append(_ScoringOutcome(scores, backbone, scoring))
        return outcomes

    @contextmanager
    def _features(self, pixels: Pixels) -> Iterator[Floats | DeviceArray]:
        if self._on_device is None:
            yield self.tiling.features(self._engine, pixels)
            return
        with self._on_device[0].on_device(pixels) as features:
            yield features

    def _score(
        self, mask: Mask | AnocoError, features: Floats | DeviceArray
    ) -> Scores | AnocoError:
        if isinstance(mask, AnocoError):
            return mask
        rows = np.flatnonzero(mask)
        try:
            if isinstance(features, np.ndarray):
                return self._score_rows(features, rows)
            if self._on_device is None:
                raise ScoringError(
                    "features on a device need a scorer that reads them there",
                    hint="use `scorer='cuda'`",
                )
            return self._on_device[1].score_rows(features, rows)
        except AnocoError as error:
            return error

    def _score_rows(self, features: Floats, rows: NDArray[np.int64]) -> Scores:
        try:
            return self._scorer.score(features[rows])
        except ScoringError:
            # The scorer named a row of those that it was given; this names the patch of the grid.
            grid = np.ones_like(features)
            grid[rows] = features[rows]
            check_query(grid, features.shape[1])
            raise

    def _finish(
        self,
        pixels: Pixels,
        placement: Placement,
        mask: Mask,
        scores: Scores,
        stages: dict[str, float],
    ) -> PictureEnergy:
        energy, similarity = _grid(mask, scores.energy), _grid(mask, scores.similarity)
        anchor = np.full(mask.shape, -1, np.int64)
        anchor[mask] = scores.anchor
        if self._views:
            others = self._other_views(pixels, placement, stages)
            energy = average(self.tiling.contract, [(IDENTITY, energy, mask), *others], mask)
        if self._baseline is not None:
            energy = np.where(mask, self._baseline.excess(energy), np.float32(0))
        score = scores.picture
        if score is None:
            score = pool(energy, self._pooling, mask)
        return PictureEnergy(placement, mask, energy, anchor, similarity, score, stages)

    def _other_views(
        self, pixels: Pixels, placement: Placement, stages: dict[str, float]
    ) -> Iterator[tuple[Affine, Map, Mask]]:
        contract = self.tiling.contract
        for first in range(0, len(self._views), _VIEWS_AT_ONCE):
            start = time.perf_counter()
            views = [
                (view, mask)
                for view in self._views[first : first + _VIEWS_AT_ONCE]
                if (mask := self._patch_mask.scored(placement, view)).any()
            ]
            if not views:
                continue
            warped = np.stack([warp(pixels, view, contract.fill) for view, _ in views])
            stages["preprocess"] += (time.perf_counter() - start) * 1000
            outcomes = self._score_all(warped, [mask for _, mask in views])
            for (view, mask), outcome in zip(views, outcomes, strict=True):
                stages["backbone"] += outcome.backbone
                stages["scoring"] += outcome.scoring
                yield view, _grid(mask, outcome.scores().energy), mask


@dataclass(frozen=True)
class _ScoringOutcome:
    """The scores of one prepared picture, or the error that explains why it has none.

    `backbone` and `scoring` are times in milliseconds.
    """

    outcome: Scores | AnocoError
    backbone: float
    scoring: float

    def scores(self) -> Scores:
        if isinstance(self.outcome, AnocoError):
            raise self.outcome
        return self.outcome


def _grid(mask: Mask, values: Floats) -> Map:
    grid = np.zeros(mask.shape, np.float32)
    grid[mask] = values
    return grid
