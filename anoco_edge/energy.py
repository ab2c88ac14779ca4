"""From pictures to the energies of their patches: prepare, engine, scorer, views, baseline.

The one road that inspecting, calibrating and measuring accuracy share.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle.baseline import BaselineGrid
from anoco_edge.bundle.schema import Affine, InputContract, Product
from anoco_edge.canvas import Canvas
from anoco_edge.engines import Engine
from anoco_edge.errors import AnocoError
from anoco_edge.geometry import Geometry
from anoco_edge.maps import Map
from anoco_edge.preprocess import Mask, Placement, prepare
from anoco_edge.scoring import Scorer, pool
from anoco_edge.scoring.types import Floats
from anoco_edge.views import IDENTITY, average, warp

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

    def read(self, pictures: Sequence[Pixels]) -> list[PictureEnergy | AnocoError]:
        """Through one run of the engine; a picture that cannot be scored gives its error, and the
        others go on."""
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
        energy, similarity = _grid(counted, scores.energy), _grid(counted, scores.similarity)
        anchor = np.full(counted.shape, -1, np.int64)
        anchor[counted] = scores.anchor
        stages["scoring"] = (time.perf_counter() - start) * 1000
        if self._views:
            others = self._other_views(seen.pixels, placement, stages)
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
            views = self._views[first : first + _VIEWS_AT_ONCE]
            start = time.perf_counter()
            warped = np.stack([warp(pixels, view, contract.fill) for view in views])
            ready = time.perf_counter()
            features = self.canvas.features(self._engine, warped)
            done = time.perf_counter()
            stages["preprocess"] += (ready - start) * 1000
            stages["backbone"] += (done - ready) * 1000
            for view, grid in zip(views, features, strict=True):
                counted = self._geometry.counted(placement, view)
                if counted.any():
                    scores = self._scorer.score(grid[counted.reshape(-1)])
                    yield view, _grid(counted, scores.energy), counted
            stages["scoring"] += (time.perf_counter() - done) * 1000


def _grid(counted: Mask, values: Floats) -> Map:
    grid = np.zeros(counted.shape, np.float32)
    grid[counted] = values
    return grid
