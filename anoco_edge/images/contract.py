"""The contract of a backbone: the size of its input and the grid of patches that it returns.

A picture is resized either to the input of the model or to a larger canvas, which the model sees
one tile after the other. `InputContract.tiled` describes that canvas as if it were one large input.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from anoco_edge.errors import BundleError

MOST_LENGTH = 2**20  # the most pixels, patches or feature channels along one axis
MOST_PIXELS = 100_000_000  # limits the input and the canvas, as it limits a picture
MOST_TILES = 1024  # the largest sensors need only 100 to 200 tiles of 224 pixels
MOST_PATCHES = 2**15  # along one axis: the bank stores row and column in 16 bits

Length = Annotated[int, Field(ge=1, le=MOST_LENGTH)]
Color = Annotated[int, Field(ge=0, le=255)]
Fit = Literal["stretch", "letterbox"]
PixelType = Literal["uint8", "float32"]
"""How a backbone takes pixels: as uint8 NHWC, or as float32 NCHW from 0 to 255 for DeepStream."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tiles(_Model):
    """The size in pixels of the canvas that pictures are resized to, and where its tiles start.

    A tile of the model's input size starts at every pair of `columns` and `rows`. Together the
    tiles cover the canvas, and each of them starts on the patch grid.
    """

    width: Length
    height: Length
    columns: tuple[int, ...] = Field(min_length=1)
    rows: tuple[int, ...] = Field(min_length=1)
    fit: Fit | None = None  # how pictures fit the canvas; None means as they fit the input


class InputContract(_Model):
    """The size of the input and of the output of a backbone.

    The model takes RGB of `width` x `height` pixels and returns `rows` x `cols` patches of `dim`
    numbers each. Prepared pictures are uint8 NHWC; `arranged` turns them into what the model takes.
    """

    width: Length
    height: Length
    fit: Fit = "stretch"
    fill: tuple[Color, Color, Color] = (0, 0, 0)
    stride: Length
    rows: Length
    cols: Length
    dim: Length
    pixels: PixelType = "uint8"

    @model_serializer(mode="wrap")
    def _without_default_pixels(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Leave `pixels` out where it is the default, so that older versions read the bundle."""
        written: dict[str, object] = write(self)
        if self.pixels == "uint8":
            written.pop("pixels", None)
        return written

    @property
    def picture_shape(self) -> tuple[int, int, int]:
        """The shape of one picture as the model takes it.

        >>> grid = InputContract(width=32, height=16, stride=16, rows=1, cols=2, dim=8)
        >>> grid.picture_shape, grid.model_copy(update={"pixels": "float32"}).picture_shape
        ((16, 32, 3), (3, 16, 32))
        """
        if self.pixels == "uint8":
            return (self.height, self.width, 3)
        return (3, self.height, self.width)

    def arranged(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        """Return prepared pictures, uint8 NHWC, as the model takes them.

        >>> grid = InputContract(width=32, height=16, stride=16, rows=1, cols=2, dim=8)
        >>> floats = grid.model_copy(update={"pixels": "float32"})
        >>> floats.arranged(np.full((4, 16, 32, 3), 255, np.uint8)).shape
        (4, 3, 16, 32)
        """
        if self.pixels == "uint8":
            return pixels
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), np.float32)

    @model_validator(mode="after")
    def _grid_fits(self) -> InputContract:
        if (self.cols * self.stride, self.rows * self.stride) != (self.width, self.height):
            raise ValueError("rows and cols times stride must give height and width")
        if self.width * self.height > MOST_PIXELS:
            raise ValueError("the input has more than 100 million pixels")
        return self

    def tiled(self, tiles: Tiles | None) -> InputContract:
        """Return the contract of the whole canvas, or this contract when there are no tiles.

        Tiles that are too many, too large or do not cover the canvas raise a BundleError.
        """
        if tiles is None:
            return self
        _check_tiles(tiles, self.stride)
        for starts, side, length in (
            (tiles.columns, self.width, tiles.width),
            (tiles.rows, self.height, tiles.height),
        ):
            steps = [after - before for before, after in pairwise(starts)]
            covered = starts[0] == 0 and starts[-1] + side == length
            if not covered or any(v % self.stride or not 0 < v <= side for v in steps):
                raise _bad_tiles(
                    f"tiles at {', '.join(map(str, starts))} do not cover {length} pixels"
                )
        cols, rows = tiles.width // self.stride, tiles.height // self.stride
        size = {"width": tiles.width, "height": tiles.height, "cols": cols, "rows": rows}
        return self.model_copy(update={**size, "fit": tiles.fit or self.fit})


def _check_tiles(tiles: Tiles, stride: int) -> None:
    """Refuse tiles that are too many or too large before any memory is allocated for them."""
    across, down = len(tiles.columns), len(tiles.rows)
    size = f"tiles of {tiles.width}x{tiles.height} pixels"
    if across * down > MOST_TILES:
        raise _bad_tiles(f"{across} x {down} tiles are more than {MOST_TILES}")
    if max(tiles.width, tiles.height) > MOST_PATCHES * stride:
        raise _bad_tiles(f"{size} make more than {MOST_PATCHES} patches one way")
    if tiles.width * tiles.height > MOST_PIXELS:
        raise _bad_tiles(f"{size} together: at most 100 million are inspected")


def _bad_tiles(what: str) -> BundleError:
    return BundleError(what, hint="set the `tiles` of the product again: anoco-edge product set")
