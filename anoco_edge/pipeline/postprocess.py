"""From energies to what a person sees: the map, the regions, and whether any counts."""

from __future__ import annotations

from dataclasses import dataclass

from anoco_edge.bundle.schema import InputContract
from anoco_edge.images.preprocess import Mask
from anoco_edge.pipeline.anomaly_map import Map, MapMaker
from anoco_edge.pipeline.energy import PictureEnergy
from anoco_edge.pipeline.regions import FoundRegion, find_regions


@dataclass(frozen=True)
class Judged:
    """The map at the canvas's size, the regions and their outline."""

    input_map: Map
    regions: tuple[FoundRegion, ...] = ()
    outline: Mask | None = None


class Judgement:
    """Judges the pictures of one canvas by one threshold (None: none is judged)."""

    def __init__(self, contract: InputContract, threshold: float | None, min_area: float) -> None:
        self._contract = contract
        self._threshold = threshold
        self._min_area = min_area
        self._map = MapMaker(contract)

    def of(self, found: PictureEnergy) -> Judged:
        """The regions of a picture whose score exceeds the threshold."""
        input_map = self._map(found.energy, found.counted)
        if self._threshold is None or found.score <= self._threshold:
            return Judged(input_map)
        regions, outline = find_regions(
            found.energy,
            input_map,
            self._threshold,
            self._contract,
            found.placement,
            self._min_area,
        )
        return Judged(input_map, tuple(regions), outline)
