"""What the engine sees of a picture: one model input, or the tiles of a larger, tiled input.

Tiles lie on one patch grid, so the patches of all of them make one larger grid, and the later
stages (scoring, map, regions) know nothing of tiles. Where two tiles overlap, the cut between them
runs through the middle, so each patch is taken from the tile that has more of its surroundings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anoco_edge.engines import Engine
from anoco_edge.errors import UsageError
from anoco_edge.images.contract import MOST_PATCHES, MOST_PIXELS, MOST_TILES, InputContract, Tiles
from anoco_edge.scoring.types import Floats

Pixels = NDArray[np.uint8]

_AT_ONCE = 8  # windows in one run of the engine
_OVERLAP = 1 / 8  # as a share of a tile, unless the caller gives an overlap


class Tiling:
    """Runs the engine on one model input, or on each tile of a tiled input.

    `contract` describes the input of all tiles together, and `windows` is the number of tiles.
    """

    def __init__(self, window: InputContract, tiles: Tiles | None = None) -> None:
        self._window = window
        self.contract = window.tiled(tiles)
        self._places: list[tuple[int, int, slice, slice]] = []
        if tiles is not None:
            down = _owned(tiles.rows, window.height, tiles.height, window.stride)
            across = _owned(tiles.columns, window.width, tiles.width, window.stride)
            self._places = [
                (top, left, rows, cols)
                for top, rows in zip(tiles.rows, down, strict=True)
                for left, cols in zip(tiles.columns, across, strict=True)
            ]
        self.windows = max(1, len(self._places))

    def features(self, engine: Engine, canvases: Pixels) -> Floats:
        """Return patch features [batch, rows * cols, dim] of pictures at the size of `contract`."""
        if not self._places:
            return engine.features(canvases)
        return np.stack([self._joined(engine, canvas) for canvas in canvases])

    def _joined(self, engine: Engine, canvas: Pixels) -> Floats:
        window, whole = self._window, self.contract
        grid = np.empty((whole.rows, whole.cols, whole.dim), np.float32)
        for start in range(0, len(self._places), _AT_ONCE):
            some = self._places[start : start + _AT_ONCE]
            cut = [canvas[y : y + window.height, x : x + window.width] for y, x, _, _ in some]
            for one, (y, x, rows, cols) in zip(engine.features(np.stack(cut)), some, strict=True):
                tile = one.reshape(window.rows, window.cols, window.dim)
                grid[rows, cols] = tile[
                    _moved(rows, y // window.stride), _moved(cols, x // window.stride)
                ]
        return grid.reshape(-1, whole.dim)


def plan_tiles(
    window: InputContract,
    picture: tuple[int, int],
    *,
    grid: tuple[int, int] | None = None,
    size: tuple[int, int] | None = None,
    overlap: int | None = None,
) -> Tiles:
    """Plan the tiles for pictures of this width and height.

    Give either `grid`, the number of columns and rows, or `size`, the width and height of a tile.
    `size` and `overlap` are in pixels of the picture; the overlap is rounded up to whole patches.

    >>> c = InputContract(width=64, height=64, stride=16, rows=4, cols=4, dim=8)
    >>> t = plan_tiles(c, (1000, 500), grid=(2, 1), overlap=0)
    >>> t.width, t.height, t.columns, t.rows
    (128, 64, (0, 64), (0,))
    """
    if overlap is not None and overlap < 0:
        raise UsageError(f"an overlap of {overlap} pixels", hint="give 0 or more")
    if grid is not None and size is None:
        width, columns = _by_number(picture[0], grid[0], window.width, window.stride, overlap)
        height, rows = _by_number(picture[1], grid[1], window.height, window.stride, overlap)
    elif size is not None and grid is None:
        width, columns = _by_size(picture[0], size[0], window.width, window.stride, overlap)
        height, rows = _by_size(picture[1], size[1], window.height, window.stride, overlap)
    else:
        raise UsageError("tiles are given by their number or by their size", hint="give one")
    fewer = "take fewer or larger ones"
    if columns * rows > MOST_TILES:
        raise UsageError(f"{columns} x {rows} tiles are more than {MOST_TILES}", hint=fewer)
    if max(width, height) > MOST_PATCHES * window.stride:
        what = f"{columns} x {rows} tiles make more than {MOST_PATCHES} patches one way"
        raise UsageError(what, hint=fewer)
    if width * height > MOST_PIXELS:
        what = f"{columns} x {rows} tiles make {width * height / 1e6:.0f} million pixels"
        raise UsageError(f"{what}, at most {MOST_PIXELS // 1_000_000} are inspected", hint=fewer)
    return Tiles(
        width=width,
        height=height,
        columns=_starts(columns, width - window.width, window.stride),
        rows=_starts(rows, height - window.height, window.stride),
        # An input that is planned for the picture has the picture's shape, up to rounding. A
        # letterbox would leave a few pixels of fill, and patches that touch fill are not scored.
        fit="stretch" if size is not None else None,
    )


def _by_number(
    length: int, tiles: int, side: int, stride: int, overlap: int | None
) -> tuple[int, int]:
    """Return the length of the tiled input along one axis, and how many tiles lie on it."""
    if tiles < 1:
        raise UsageError(
            f"a picture cannot be cut into {tiles} tiles",
            hint="give one or more each way (`tiles`)",
        )
    if tiles == 1:
        return side, 1
    # n tiles of length t, of which neighbours share o, cover n t - (n - 1) o.
    tile = Fraction(length + (tiles - 1) * (overlap or 0), tiles)
    common = _common(overlap, tile, side, stride)
    return side + (tiles - 1) * (side - common), tiles


def _by_size(
    length: int, tile: int, side: int, stride: int, overlap: int | None
) -> tuple[int, int]:
    """Return the same as `_by_number`, for tiles of a given length."""
    if tile < 1:
        raise UsageError(
            f"tiles of {tile} pixels", hint="give their size in pixels, such as 1024 (`tile_size`)"
        )
    if overlap is not None and overlap >= tile:
        raise _nothing_left(overlap, Fraction(tile))
    if length <= tile:
        return side, 1
    canvas = math.ceil(Fraction(length * side, tile * stride)) * stride
    # The tiled input was rounded up, so a tile shows a little less of the picture.
    common = _common(overlap, Fraction(length * side, canvas), side, stride)
    return canvas, math.ceil(Fraction(canvas - common, side - common))


def _common(overlap: int | None, tile: Fraction, side: int, stride: int) -> int:
    """Return how many pixels of the tiled input two neighbours share, in whole patches."""
    if overlap is None:
        return min(math.ceil(_OVERLAP * side / stride) * stride, side - stride)
    common = math.ceil(overlap * side / tile / stride) * stride
    if common >= side:
        raise _nothing_left(overlap, tile)
    return common


def _nothing_left(overlap: int, tile: Fraction) -> UsageError:
    return UsageError(
        f"an overlap of {overlap} pixels leaves nothing of tiles of {round(tile)}",
        hint="take less overlap or larger tiles",
    )


def _starts(tiles: int, room: int, stride: int) -> tuple[int, ...]:
    """Return the positions where tiles start, evenly spaced on the patch grid."""
    steps = max(tiles - 1, 1)
    return tuple(round(k * (room // stride) / steps) * stride for k in range(tiles))


def _owned(starts: Sequence[int], side: int, length: int, stride: int) -> list[slice]:
    """Return which patches of the tiled input, along one axis, are taken from each tile."""
    cuts = [0]
    cuts += [(b + a + side) // (2 * stride) for a, b in pairwise(starts)]
    cuts.append(length // stride)
    return [slice(a, b) for a, b in pairwise(cuts)]


def _moved(owned: slice, start: int) -> slice:
    return slice(owned.start - start, owned.stop - start)
