"""Turned and mirrored views of a reference, for parts that may lie at any angle.

A turned view is what the camera would have seen had the part been turned about the centre of the
picture. It is made from the picture itself and then resized as every picture is, so it is as sharp
as an inspected one. What lies beyond the picture is filled by reflection: the backbone sees
plausible surroundings, and patches that touch any of it are left out of the bank.

As in `augmentation`, a view is an `Affine` between positions in the model's input.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.bundle.schema import Affine
from anoco_edge.images.contract import InputContract
from anoco_edge.images.preprocess import Mask, Pixels, Placement, resize_into
from anoco_edge.pipeline.augmentation import IDENTITY, wanted_patches

ROTATIONS = 8  # angles of a reference, unless the user gives another number
# A picture is turned at no more than so many times the size of the input. Interpolation blurs by a
# fraction of a pixel, which the resize to the input then makes so much smaller.
_OVERSIZE = 3
_PIXELS_AT_ONCE = 1 << 18  # turned at a time; each takes some 200 bytes meanwhile
_ROUNDING = 1e-6  # of a position, in pixels

Positions = NDArray[np.float64]


def rotation_views(count: int, placement: Placement) -> tuple[Affine, ...]:
    """Return the views of a picture at `count` angles, evenly spaced, without the picture itself.

    The picture is turned in its own pixels: where the input stretches it, the view is a rotation
    between two stretches.

    >>> rotation_views(4, Placement(300, 100, 0, 0, 64, 64))[1]  # turned by 180 degrees
    (-1.0, -0.0, 64.0, 0.0, -1.0, 64.0)
    """
    wide = placement.picture_width / placement.width
    high = placement.picture_height / placement.height
    x, y = placement.left + placement.width / 2, placement.top + placement.height / 2
    views: list[Affine] = []
    for number in range(1, count):
        # Twelve digits are the same with every C library, and right angles become exact.
        angle = 2 * math.pi * number / count
        cos, sin = round(math.cos(angle), 12), round(math.sin(angle), 12)
        b, d = -sin * high / wide, sin * wide / high
        views.append((cos, b, x - cos * x - b * y, d, cos, y - d * x - cos * y))
    return tuple(views)


def mirrored_views(turned: tuple[Affine, ...], placement: Placement) -> tuple[Affine, ...]:
    """Return the mirrored views of a picture that has these turned views: the picture itself, and
    each of the views, of a picture that is mirrored left to right.

    >>> mirrored_views((), Placement(300, 100, 0, 0, 64, 64))
    ((-1.0, 0.0, 64.0, 0.0, 1.0, 0.0),)
    """
    across = 2.0 * placement.left + placement.width
    return tuple((-a, 0.0 - b, across - c, d, e, f) for a, b, c, d, e, f in (IDENTITY, *turned))


def turn(rgb: Pixels, view: Affine, contract: InputContract, placement: Placement) -> Pixels:
    """Return the model's input for a turned view of a picture, reflected beyond its border.

    >>> c = InputContract(width=3, height=3, stride=3, rows=1, cols=1, dim=8)
    >>> p = Placement(3, 3, 0, 0, 3, 3)
    >>> rgb = np.arange(9, dtype=np.uint8).reshape(3, 3, 1).repeat(3, axis=2)
    >>> turn(rgb, rotation_views(4, p)[0], c, p)[..., 0].tolist()
    [[2, 5, 8], [1, 4, 7], [0, 3, 6]]
    """
    most = (_OVERSIZE * placement.width, _OVERSIZE * placement.height)
    size = (min(rgb.shape[1], most[0]), min(rgb.shape[0], most[1]))
    if size != (rgb.shape[1], rgb.shape[0]):
        rgb = np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.BILINEAR))
    return resize_into(
        sample_reflected(rgb, _in_pixels(view, placement, size)), contract, placement
    )


def turned_patches(
    contract: InputContract, placement: Placement, view: Affine, wanted: Mask
) -> Mask:
    """Return which patches of a turned view are enrolled.

    They take nothing from beyond the picture, neither directly nor by the filter of the resize,
    and more than half from wanted pixels (see `augmentation.visible_patches`).

    >>> c = InputContract(width=8, height=8, stride=2, rows=4, cols=4, dim=8)
    >>> p, everything = Placement(8, 8, 0, 0, 8, 8), np.ones((8, 8), np.bool_)
    >>> turned_patches(c, p, rotation_views(8, p)[0], everything).astype(int).tolist()
    [[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    """
    right, bottom = placement.left + placement.width, placement.top + placement.height
    x0, x1, across = _reach(
        contract.cols, contract.stride, placement.left, right, placement.picture_width
    )
    y0, y1, down = _reach(
        contract.rows, contract.stride, placement.top, bottom, placement.picture_height
    )
    whole: Mask = down[:, None] & across
    a, b, c, d, e, f = view
    for x in (x0, x1):
        for y in (y0[:, None], y1[:, None]):
            whole &= _within(a * x + b * y + c, placement.left, right)
            whole &= _within(d * x + e * y + f, placement.top, bottom)
    return whole & wanted_patches(contract, view, wanted)


def _reach(
    count: int, stride: int, start: int, stop: int, picture: int
) -> tuple[Positions, Positions, Mask]:
    """Return along one axis where the pixels lie that each patch takes something from, and which
    patches touch no fill.

    The resize is a triangle that reaches one pixel of the input or of the picture, whichever is
    larger, from the centre of a pixel. It ends at the edge of the picture.
    """
    low = np.arange(count) * float(stride)
    high = low + stride
    reach = max(1.0, (stop - start) / picture) - 0.5
    inside = (low >= start) & (high <= stop)
    return np.maximum(low - reach, start), np.minimum(high + reach, stop), inside


def _within(position: Positions, start: int, stop: int) -> Mask:
    result: Mask = (position >= start - _ROUNDING) & (position <= stop + _ROUNDING)
    return result


def _in_pixels(view: Affine, placement: Placement, size: tuple[int, int]) -> Affine:
    """Return a view between positions in a picture of this width and height, not in the input."""
    a, b, c, d, e, f = view
    wide, high = size[0] / placement.width, size[1] / placement.height
    left, top = placement.left, placement.top
    return (
        a,
        b * wide / high,
        (a * left + b * top + c - left) * wide,
        d * high / wide,
        e,
        (d * left + e * top + f - top) * high,
    )


def sample_reflected(rgb: Pixels, view: Affine) -> Pixels:
    """Return a view of a picture, reflected beyond its border and as large as the picture.

    The view is an affine between positions in the picture itself, sampled bilinearly at the centres
    of its pixels.

    >>> row = np.arange(9, dtype=np.uint8).reshape(1, 3, 3)
    >>> sample_reflected(row, (1, 0, 2, 0, 1, 0)).tolist()
    [[[6, 7, 8], [6, 7, 8], [3, 4, 5]]]
    """
    # This takes one array operation at a time and not Pillow's transform, which knows no reflection
    # and in which compilers may contract a product and a sum, with other bytes on other processors.
    height, width, _ = rgb.shape
    a, b, c, d, e, f = view
    flat = rgb.reshape(-1, 3)
    out = np.empty_like(rgb)
    x = np.arange(width) + 0.5
    rows = max(1, _PIXELS_AT_ONCE // width)
    for start in range(0, height, rows):
        y = (np.arange(start, min(start + rows, height)) + 0.5)[:, None]
        left, right, across = _between((a * x + c) + b * y, width)
        top, bottom, down = _between((d * x + f) + e * y, height)
        upper = _blend(flat[top * width + left], flat[top * width + right], across)
        lower = _blend(flat[bottom * width + left], flat[bottom * width + right], across)
        out[start : start + rows] = np.rint(_blend(upper, lower, down))
    return out


def _between(
    position: Positions, length: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """Return the two pixels whose centres a position lies between, and the share of the second."""
    before = np.floor(position - 0.5)
    share = (position - 0.5 - before).astype(np.float32)
    first = before.astype(np.intp)
    return _reflected(first, length), _reflected(first + 1, length), share[..., None]


def _reflected(index: NDArray[np.intp], length: int) -> NDArray[np.intp]:
    """Return which pixel stands for one beyond the edge; the edge itself is the mirror."""
    index = index % (2 * length)
    return np.minimum(index, 2 * length - 1 - index)


def _blend(
    first: NDArray[np.uint8] | NDArray[np.float32],
    second: NDArray[np.uint8] | NDArray[np.float32],
    share: NDArray[np.float32],
) -> NDArray[np.float32]:
    one, other = first.astype(np.float32), second.astype(np.float32)
    blended: NDArray[np.float32] = one + (other - one) * share
    return blended
