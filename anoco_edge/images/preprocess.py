"""Resize a picture to the model's input, and map pixels and patches back to the picture.

Pillow's 8-bit antialiased BILINEAR resize is the reference that other runtimes are compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.images.contract import InputContract

Pixels = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Placement:
    """Where a picture lies in the model's input: `left, top, width, height`, in input pixels."""

    picture_width: int
    picture_height: int
    left: int
    top: int
    width: int
    height: int

    def to_picture(self, box: Box) -> Box:
        """Convert a box `x0, y0, x1, y1` from input to picture pixels, clipped to the picture."""
        sx, sy = self.picture_width / self.width, self.picture_height / self.height
        x0, x1 = (min(max((x - self.left) * sx, 0), self.picture_width) for x in box[::2])
        y0, y1 = (min(max((y - self.top) * sy, 0), self.picture_height) for y in box[1::2])
        return (x0, y0, x1, y1)

    @property
    def area_scale(self) -> float:
        """Return how many pixels of the picture one pixel of the input covers."""
        return self.picture_width * self.picture_height / (self.width * self.height)


def place(contract: InputContract, width: int, height: int) -> Placement:
    """Return where a picture of this width and height lies in the model's input.

    >>> c = InputContract(width=64, height=64, fit="letterbox", stride=16, rows=4, cols=4, dim=8)
    >>> p = place(c, 200, 100)
    >>> p.left, p.top, p.width, p.height
    (0, 16, 64, 32)
    """
    if contract.fit == "stretch":
        return Placement(width, height, 0, 0, contract.width, contract.height)
    scale = min(contract.width / width, contract.height / height)
    inner_w = min(contract.width, max(1, round(width * scale)))
    inner_h = min(contract.height, max(1, round(height * scale)))
    left, top = (contract.width - inner_w) // 2, (contract.height - inner_h) // 2
    return Placement(width, height, left, top, inner_w, inner_h)


def prepare(rgb: Pixels, contract: InputContract) -> tuple[Pixels, Placement]:
    """Resize a picture to the model's input; a letterbox fills the borders with `fill`."""
    placement = place(contract, rgb.shape[1], rgb.shape[0])
    return resize_into(rgb, contract, placement), placement


def resize_into(rgb: Pixels, contract: InputContract, placement: Placement) -> Pixels:
    """Resize pixels to where a picture lies in the model's input; the rest has the color `fill`.

    >>> c = InputContract(width=4, height=4, fill=(9, 9, 9), stride=2, rows=2, cols=2, dim=8)
    >>> black = np.zeros((20, 30, 3), np.uint8)
    >>> resize_into(black, c, Placement(30, 20, 0, 1, 4, 2))[:, 0, 0].tolist()
    [9, 0, 0, 9]
    """
    size = (placement.width, placement.height)
    scaled = np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.BILINEAR))
    if size == (contract.width, contract.height):
        return scaled
    out = np.empty((contract.height, contract.width, 3), np.uint8)
    out[:] = contract.fill
    rows = slice(placement.top, placement.top + placement.height)
    out[rows, placement.left : placement.left + placement.width] = scaled
    return out


def patch_box(contract: InputContract, row: int, col: int) -> Box:
    """Return the box `x0, y0, x1, y1` of a patch, in pixels of the input.

    >>> c = InputContract(width=64, height=64, stride=16, rows=4, cols=4, dim=8)
    >>> patch_box(c, 1, 2)
    (32, 16, 48, 32)
    """
    s = contract.stride
    return (col * s, row * s, (col + 1) * s, (row + 1) * s)
