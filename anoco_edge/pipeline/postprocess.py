"""Turns energies into what a person sees: the anomaly map and the regions over the threshold."""

from __future__ import annotations

from dataclasses import dataclass

from anoco_edge.images.contract import InputContract
from anoco_edge.images.preprocess import Mask
from anoco_edge.pipeline.anomaly_map import Map, MapMaker
from anoco_edge.pipeline.energy import PictureEnergy
from anoco_edge.pipeline.regions import FoundRegion, find_regions
from anoco_edge.scoring.pooling import Pooling, threshold_grid


@dataclass(frozen=True)
class PostProcessOutput:
    """The anomaly map, the regions found in it and their outline.

    The map and the outline have the size of the model's input (of all tiles together).
    """

    input_map: Map
    regions: tuple[FoundRegion, ...] = ()
    outline: Mask | None = None


class PostProcessor:
    """Finds regions in the pictures of one product; without a threshold it makes the map alone."""

    def __init__(
        self,
        contract: InputContract,
        threshold: float | None,
        min_area: float,
        pooling: Pooling = "max",
    ) -> None:
        self._contract = contract
        self._threshold = threshold
        self._min_area = min_area
        self._pooling = pooling
        self._map = MapMaker(contract)

    def process(self, found: PictureEnergy) -> PostProcessOutput:
        """Make the map of a picture, and find regions where its score exceeds the threshold."""
        input_map = self._map(found.energy, found.scored)
        if self._threshold is None or found.score <= self._threshold:
            return PostProcessOutput(input_map)
        regions, outline = find_regions(
            found.energy,
            input_map,
            self._threshold,
            self._contract,
            found.placement,
            self._min_area,
            threshold_grid(found.energy, found.scored, self._pooling),
        )
        return PostProcessOutput(input_map, tuple(regions), outline)
