"""Finds defects: patches over the threshold, and the raised patches connected to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.images.contract import InputContract
from anoco_edge.images.preprocess import Box, Mask, Placement
from anoco_edge.pipeline.anomaly_map import Map
from anoco_edge.scoring.types import Floats

# A region starts where energy exceeds the threshold and spreads to neighbours (8-connected)
# above this share of it, so that a defect is outlined whole and not only at its peak.
GROW = 0.5


@dataclass(frozen=True)
class FoundRegion:
    """One defect, measured in pixels of the picture; `row, col` is its strongest patch.

    `peak` is the largest value that was compared with the threshold: with pooling `smooth` a
    smoothed energy, else the energy of the strongest patch.
    """

    box: Box
    area: float
    peak: float
    row: int
    col: int


def find_regions(
    energy: Map,
    input_map: Map,
    threshold: float,
    contract: InputContract,
    placement: Placement,
    min_area: float = 0.0,
    compared: Floats | None = None,
) -> tuple[list[FoundRegion], Mask]:
    """Return the regions of at least `min_area` picture pixels, strongest first, and their outline.

    A region starts and spreads by the values in `compared`, one for each patch: the smoothed
    energies with pooling `smooth`, else the energies (None). So a score over the threshold has a
    region. Its strongest patch is that of the largest energy, because evidence is about one patch.
    The outline is a mask at the model's input size.
    """
    compared = energy if compared is None else compared
    outline = np.zeros(input_map.shape, np.bool_)
    regions = []
    # The threshold stays a float64, as it does when it is compared with the score. Rounded to
    # float32, a threshold just below the score could find no region.
    over = compared > np.float64(threshold)
    for patches in _components(over, compared > GROW * threshold):
        rows, cols = np.nonzero(patches)
        strongest = int(np.argmax(energy[rows, cols]))
        pixels = _pixels(patches, over, input_map, threshold, contract.stride)
        area = float(pixels.sum()) * placement.area_scale
        if area < min_area:
            continue
        ys, xs = np.nonzero(pixels)
        box = (int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1)
        row, col = int(rows[strongest]), int(cols[strongest])
        peak = float(compared[patches].max())
        regions.append(FoundRegion(placement.to_picture(box), area, peak, row, col))
        outline |= pixels
    regions.sort(key=lambda region: -region.peak)
    return regions, outline


def _pixels(patches: Mask, seeds: Mask, input_map: Map, threshold: float, stride: int) -> Mask:
    """Return the pixels of a region, which are those of its patches where the map is high.

    If the map is high nowhere, they are the whole seed patches: smoothing may push a single hot
    patch below the level.
    """
    block = np.ones((stride, stride), np.bool_)
    inside: Mask = np.kron(patches, block)
    high = inside & (input_map > GROW * threshold)
    return high if high.any() else np.kron(patches & seeds, block)


def _components(seeds: Mask, spread: Mask) -> list[Mask]:
    """Return the 8-connected components of `spread` that contain a seed.

    A flood fill is fast enough because the grid is small.
    """
    left: NDArray[np.bool_] = (spread | seeds).copy()
    found = []
    for start in zip(*np.nonzero(seeds), strict=True):
        if not left[start]:
            continue
        component = np.zeros_like(left)
        stack = [(int(start[0]), int(start[1]))]
        left[start] = False
        while stack:
            row, col = stack.pop()
            component[row, col] = True
            window = (slice(max(row - 1, 0), row + 2), slice(max(col - 1, 0), col + 2))
            rows, cols = np.nonzero(left[window])
            left[window] = False
            stack += [
                (int(r) + window[0].start, int(c) + window[1].start)
                for r, c in zip(rows, cols, strict=True)
            ]
        found.append(component)
    return found
