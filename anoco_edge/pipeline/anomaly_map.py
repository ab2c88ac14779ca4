"""Turns the grid of patch energies into the anomaly map (DESIGN: bilinear, then Gaussian 7x7)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.images.contract import InputContract
from anoco_edge.images.preprocess import Mask, Placement

Map = NDArray[np.float32]
KERNEL, SIGMA = 7, 0.8  # as in the paper's supplement
# Products of so many multiplications OpenBLAS computes in the calling thread. For larger ones it
# wakes its threads, and on a machine that is busy waiting for them takes a hundred times as long.
ONE_THREAD = 1 << 18


class MapMaker:
    """Upsamples and smooths the energies of one product's pictures.

    Both steps are linear and separable, so one matrix for each axis does the two of them.
    """

    def __init__(self, contract: InputContract) -> None:
        self._stride = contract.stride
        across = axis_matrix(contract.cols, contract.width)
        self._across = across.T
        down = axis_matrix(contract.rows, contract.height)
        most = ONE_THREAD // (contract.cols * max(contract.rows, contract.width))
        self._down = down.reshape(-1, _block(contract.height, most), contract.rows)

    def __call__(self, energy: Map, scored: Mask) -> Map:
        """Return the map at the model's input size, with zeros on patches that are not scored.

        A patch that is not scored has no energy, so its neighbours are averaged without it.
        """
        if scored.all():
            return self._apply(energy)
        weight = self._apply(scored.astype(np.float32))
        raised = self._apply(np.where(scored, energy, 0).astype(np.float32))
        smooth = np.divide(raised, weight, out=np.zeros_like(raised), where=weight > 0)
        smooth[~np.kron(scored, np.ones((self._stride, self._stride), np.bool_))] = 0
        return smooth

    def _apply(self, grid: Map) -> Map:
        blocks: Map = self._down @ grid.astype(np.float32) @ self._across
        return blocks.reshape(-1, self._across.shape[1])


def _block(rows: int, most: int) -> int:
    """Return in blocks of how many rows a product is computed.

    >>> _block(448, 18), _block(4096, 1)
    (16, 4096)
    """
    # Products of fewer rows cost more than the threads that they do without.
    fitting = [n for n in range(4, most + 1) if rows % n == 0]
    return max(fitting, default=rows)


def axis_matrix(patches: int, pixels: int) -> Map:
    """Return the matrix, pixels x patches, that interpolates and then smooths along one axis.

    Its rows sum to one, so a flat grid gives a flat map:

    >>> bool(np.allclose(axis_matrix(4, 64).sum(axis=1), 1))
    True
    """
    offsets = [k - KERNEL // 2 for k in range(KERNEL)]
    taps = np.exp([-(k**2) / (2 * SIGMA**2) for k in offsets])
    taps /= taps.sum()
    rough = _bilinear(patches, pixels)
    smooth = sum(t * rough[_reflected(pixels, k)] for k, t in zip(offsets, taps, strict=True))
    return np.asarray(smooth, np.float32)


def _bilinear(patches: int, pixels: int) -> NDArray[np.float64]:
    """Return the matrix of bilinear interpolation, with half-pixel centres and clamped edges."""
    centre = (np.arange(pixels) + 0.5) * patches / pixels - 0.5
    centre = centre.clip(0, patches - 1)
    low = np.floor(centre).astype(int).clip(0, max(patches - 2, 0))
    share = centre - low
    matrix = np.zeros((pixels, patches))
    rows = np.arange(pixels)
    matrix[rows, low] += 1 - share
    matrix[rows, np.minimum(low + 1, patches - 1)] += share
    return matrix


def _reflected(pixels: int, offset: int) -> NDArray[np.intp]:
    """Return for each pixel the index of the pixel at `offset` from it, reflected at the borders.

    The reflection does not repeat the edge pixel (dcb|abcd|cba).

    >>> _reflected(4, 2).tolist()
    [2, 3, 2, 1]
    """
    period = max(2 * (pixels - 1), 1)
    source = np.abs(np.arange(pixels) + offset) % period
    return np.where(source >= pixels, period - source, source)


def enlarge(input_map: Map, placement: Placement) -> Map:
    """Return the map at the size of the picture itself, without the fill around it."""
    p = placement
    inner = input_map[p.top : p.top + p.height, p.left : p.left + p.width]
    size = (p.picture_width, p.picture_height)
    scaled = Image.fromarray(np.ascontiguousarray(inner)).resize(size, Image.Resampling.BILINEAR)
    return np.asarray(scaled, dtype=np.float32)
