"""From pictures to the energies of their patches: prepare, engine, scorer, views, baseline.

The one road that inspecting, calibrating and measuring accuracy share.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle.baseline import BaselineGrid
from anoco_edge.bundle.schema import Affine, InputContract, Product
from anoco_edge.engines import DeviceEngine, Engine
from anoco_edge.errors import AnocoError
from anoco_edge.images.preprocess import Mask, Placement, prepare
from anoco_edge.pipeline.anomaly_map import Map
from anoco_edge.pipeline.augmentation import IDENTITY, average, warp
from anoco_edge.pipeline.patch_mask import Geometry
from anoco_edge.pipeline.tiling import Canvas
from anoco_edge.scoring import Scorer, Scores, pool
from anoco_edge.scoring.device_array import DeviceArray
from anoco_edge.scoring.types import DeviceScorer, Floats

Pixels = NDArray[np.uint8]
_VIEWS_AT_ONCE = 4


@dataclass(frozen=True)
class PictureEnergy:
    """Grids with one entry a patch, 0 (anchor: -1) where none was scored; times in ms."""

    placement: Placement
    counted: Mask
    energy: Map
    anchor: NDArray[np.int64]
    similarity: NDArray[np.float32]
    score: float
    stages: dict[str, float] = field(repr=False)


@dataclass(frozen=True)
class Seen:
    """A prepared picture and the features of its patches; times in ms."""

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
        geometry: Geometry,
        scorer: Scorer,
        baseline: BaselineGrid | None = None,
    ) -> None:
        self.canvas = Canvas(window, product.tiles)
        self._engine = engine
        self._geometry = geometry
        self._scorer = scorer
        self._baseline = baseline
        self._pooling = product.pooling
        self._views = product.views if product.tta == "paper" else ()
        # Where both can, features stay on the GPU. Tiles are put together on the processor.
        self._there: tuple[DeviceEngine, DeviceScorer] | None = None
        if isinstance(engine, DeviceEngine) and isinstance(scorer, DeviceScorer):
            self._there = (engine, scorer) if self.canvas.windows == 1 else None

    def read(self, pictures: Sequence[Pixels]) -> list[PictureEnergy | AnocoError]:
        """Through one run of the engine; a picture that cannot be scored gives its error, and the
        others go on."""
        if self._there is not None:
            return self._read_there(pictures)
        found: list[PictureEnergy | AnocoError] = []
        for seen in self.see(pictures):
            try:
                found.append(self.score(seen))
            except AnocoError as error:
                found.append(error)
        return found

    def see(self, pictures: Sequence[Pixels]) -> list[Seen]:
        """Through one run of the engine, its time shared out evenly. Any reader with the same
        engine and canvas can score what this one has seen."""
        if not pictures:
            return []
        start = time.perf_counter()
        prepared = [prepare(rgb, self.canvas.contract) for rgb in pictures]
        ready = time.perf_counter()
        features = self.canvas.features(self._engine, np.stack([pixels for pixels, _ in prepared]))
        share = 1000 / len(pictures)
        stages = {
            "preprocess": (ready - start) * share,
            "backbone": (time.perf_counter() - ready) * share,
        }
        return [
            Seen(pixels, placement, grid, dict(stages))
            for (pixels, placement), grid in zip(prepared, features, strict=True)
        ]

    def score(self, seen: Seen) -> PictureEnergy:
        """The energies of one picture."""
        start = time.perf_counter()
        placement, stages = seen.placement, dict(seen.stages)
        counted = self._geometry.counted(placement)
        scores = self._scorer.score(seen.features[counted.reshape(-1)])
        stages["scoring"] = (time.perf_counter() - start) * 1000
        return self._finish(seen.pixels, placement, counted, scores, stages)

    def _read_there(self, pictures: Sequence[Pixels]) -> list[PictureEnergy | AnocoError]:
        if not pictures:
            return []
        start = time.perf_counter()
        prepared = [prepare(rgb, self.canvas.contract) for rgb in pictures]
        ready = (time.perf_counter() - start) * 1000 / len(pictures)
        masks = [self._counted(placement) for _, placement in prepared]
        scored = self._score_all(np.stack([pixels for pixels, _ in prepared]), masks)
        found: list[PictureEnergy | AnocoError] = []
        for (pixels, placement), counted, one in zip(prepared, masks, scored, strict=True):
            stages = {"preprocess": ready, "backbone": one.backbone, "scoring": one.scoring}
            try:
                scores = one.scores()
                assert not isinstance(counted, AnocoError)  # that would have no scores
                found.append(self._finish(pixels, placement, counted, scores, stages))
            except AnocoError as error:
                found.append(error)
        return found

    def _counted(self, placement: Placement) -> Mask | AnocoError:
        try:
            return self._geometry.counted(placement)
        except AnocoError as error:  # a picture so thin that no patch is left
            return error

    def _score_all(self, pixels: Pixels, masks: Sequence[Mask | AnocoError]) -> list[_Scored]:
        """What the engine and the scorer make of prepared pictures. Features on a GPU are gone with
        the next run, so that everything that needs them happens here."""
        scored: list[_Scored] = []
        at_once = self._there[0].max_batch if self._there else len(pixels)
        for first in range(0, len(pixels), at_once):
            some = slice(first, first + at_once)
            start = time.perf_counter()
            with self._features(pixels[some]) as features:
                backbone = (time.perf_counter() - start) * 1000 / len(features)
                for counted, grid in zip(masks[some], features, strict=True):
                    start = time.perf_counter()
                    outcome = self._score(counted, grid)
                    scored.append(_Scored(outcome, backbone, (time.perf_counter() - start) * 1000))
        return scored

    @contextmanager
    def _features(self, pixels: Pixels) -> Iterator[Floats | DeviceArray]:
        if self._there is None:
            yield self.canvas.features(self._engine, pixels)
            return
        with self._there[0].on_device(pixels) as features:
            yield features

    def _score(
        self, counted: Mask | AnocoError, features: Floats | DeviceArray
    ) -> Scores | AnocoError:
        if isinstance(counted, AnocoError):
            return counted
        rows = np.flatnonzero(counted)
        try:
            if self._there is not None:
                return self._there[1].score_rows(features, rows)
            assert isinstance(features, np.ndarray)
            return self._scorer.score(features[rows])
        except AnocoError as error:
            return error

    def _finish(
        self,
        pixels: Pixels,
        placement: Placement,
        counted: Mask,
        scores: Scores,
        stages: dict[str, float],
    ) -> PictureEnergy:
        energy, similarity = _grid(counted, scores.energy), _grid(counted, scores.similarity)
        anchor = np.full(counted.shape, -1, np.int64)
        anchor[counted] = scores.anchor
        if self._views:
            others = self._other_views(pixels, placement, stages)
            whole = [(IDENTITY, energy, counted), *others]
            energy = average(self.canvas.contract, whole, counted)
        if self._baseline is not None:
            energy = np.where(counted, self._baseline.excess(energy), np.float32(0))
        score = pool(energy[counted], self._pooling) if scores.picture is None else scores.picture
        return PictureEnergy(placement, counted, energy, anchor, similarity, score, stages)

    def _other_views(
        self, pixels: Pixels, placement: Placement, stages: dict[str, float]
    ) -> Iterator[tuple[Affine, Map, Mask]]:
        contract = self.canvas.contract
        for first in range(0, len(self._views), _VIEWS_AT_ONCE):
            start = time.perf_counter()
            views = [
                (view, counted)
                for view in self._views[first : first + _VIEWS_AT_ONCE]
                if (counted := self._geometry.counted(placement, view)).any()
            ]
            if not views:
                continue
            warped = np.stack([warp(pixels, view, contract.fill) for view, _ in views])
            stages["preprocess"] += (time.perf_counter() - start) * 1000
            scored = self._score_all(warped, [counted for _, counted in views])
            for (view, counted), one in zip(views, scored, strict=True):
                stages["backbone"] += one.backbone
                stages["scoring"] += one.scoring
                yield view, _grid(counted, one.scores().energy), counted


@dataclass(frozen=True)
class _Scored:
    """The scores of one prepared picture, or why it has none; times in ms."""

    outcome: Scores | AnocoError
    backbone: float
    scoring: float

    def scores(self) -> Scores:
        if isinstance(self.outcome, AnocoError):
            raise self.outcome
        return self.outcome


def _grid(counted: Mask, values: Floats) -> Map:
    grid = np.zeros(counted.shape, np.float32)
    grid[counted] = values
    return grid
