"""Views of a picture for test-time augmentation (the paper's supplement S1).

This module draws views at random, warps pictures into them, decides which of their patches are
scored, and averages the energies of all views into one grid.

A view is an `Affine`, which maps a position in the view to the position in the picture that it
comes from. Positions are continuous, and the centre of the first pixel is at 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.bundle.schema import Affine
from anoco_edge.errors import ScoringError
from anoco_edge.images.contract import InputContract
from anoco_edge.images.preprocess import Box, Mask, Pixels
from anoco_edge.pipeline.anomaly_map import Map

IDENTITY: Affine = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
# The number of views that the query and all references share, and of further views of a reference.
PAIRED, OWN = 25, 5
TEMPERATURE = 0.1  # of the entropy weights; the paper gives no value, so this one is ours


def draw_view(rng: np.random.Generator, width: int, height: int) -> Affine:
    """Draw a random view: flips, then shears, scale and rotation about the centre, then a shift.

    Every view takes eight numbers from the generator. All of them come from plain `random()`,
    because other distributions may change between versions of NumPy.

    >>> a, b, c, d, e, f = draw_view(np.random.default_rng(0), 768, 768)
    >>> 0.95**2 <= 1 / abs(a * e - b * d) <= 1.05**2
    True
    """
    flips, turn, shifts, scale, shears = np.split(rng.random(8), [2, 3, 5, 6])
    mirror = np.where(flips < 0.5, -1.0, 1.0)
    side = 2 * float(turn[0]) - 1
    angle = math.radians(math.copysign(5 + 10 * abs(side), side))
    rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    tan_x, tan_y = np.tan(np.radians(10 * shears - 5))
    shear = np.array([[1, 0], [tan_y, 1]]) @ np.array([[1, tan_x], [0, 1]])
    size = np.array([width, height])
    linear = (0.95 + 0.1 * scale) * rotation @ shear * mirror
    offset = size / 2 + 0.02 * (2 * shifts - 1) * size - linear @ (size / 2)
    (a, b), (d, e) = linear.tolist()
    c, f = offset.tolist()
    return _inverse((a, b, c, d, e, f))


def paired_views(seed: int, width: int, height: int) -> tuple[Affine, ...]:
    """Return the views that the query and all references share, without the identity.

    >>> len(paired_views(0, 768, 768))
    25
    """
    rng = np.random.default_rng(seed)
    return tuple(draw_view(rng, width, height) for _ in range(PAIRED))


def own_views(seed: int, digest: str, width: int, height: int) -> tuple[Affine, ...]:
    """Return the further views of one reference.

    They follow from its sha256, so adding or removing other references never changes them.

    >>> len(own_views(0, "c0ffee" * 10 + "cafe", 768, 768))
    5
    """
    rng = np.random.default_rng([seed, int(digest, 16)])
    return tuple(draw_view(rng, width, height) for _ in range(OWN))


def warp(pixels: Pixels, view: Affine, fill: tuple[int, int, int]) -> Pixels:
    """Return the pixels of a view, sampled bilinearly.

    A pixel whose centre lies beyond the picture has the color `fill`.

    >>> row = np.arange(9, dtype=np.uint8).reshape(1, 3, 3)
    >>> warp(row, (-1, 0, 3, 0, 1, 0), (0, 0, 0)).tolist()
    [[[6, 7, 8], [3, 4, 5], [0, 1, 2]]]
    """
    return np.asarray(_transform(Image.fromarray(pixels), view, fill))


def visible_patches(contract: InputContract, view: Affine, inside: Mask, wanted: Mask) -> Mask:
    """Return which patches of a view are scored.

    A patch is scored if it takes nothing from fill or from beyond the input, and more than half
    from wanted pixels. Both masks describe the source at the size of the model's input (of all
    tiles together): `inside` marks picture, not fill, and `wanted` marks what lies in the region
    of interest and not under the ignore mask.

    >>> c = InputContract(width=6, height=2, stride=2, rows=1, cols=3, dim=8)
    >>> everything = np.ones((2, 6), np.bool_)
    >>> visible_patches(c, (1, 0, 0.5, 0, 1, 0), everything, everything).tolist()
    [[True, True, False]]
    """
    whole: Mask = _shares(contract, view, inside).min(axis=(1, 3)) == 1
    return whole & wanted_patches(contract, view, wanted)


def wanted_patches(contract: InputContract, view: Affine, wanted: Mask) -> Mask:
    """Return the patches of a view of which more than half comes from wanted pixels.

    >>> c = InputContract(width=6, height=2, stride=2, rows=1, cols=3, dim=8)
    >>> left = np.array([[True, True, True, False, False, False]] * 2)
    >>> wanted_patches(c, (-1, 0, 6, 0, 1, 0), left).tolist()
    [[False, False, True]]
    """
    share = _shares(contract, view, wanted).mean(axis=(1, 3), dtype=np.float64)
    result: Mask = share > 0.5
    return result


def box_in_source(view: Affine, box: Box) -> Box:
    """Return the smallest box in the source that contains a box of a view.

    The result may reach beyond the source.

    >>> box_in_source((-1, 0, 64, 0, 1, 0), (0, 16, 8, 32))
    (56, 16, 64, 32)
    """
    a, b, c, d, e, f = view
    corners = [(x, y) for x in box[::2] for y in box[1::2]]
    xs = [a * x + b * y + c for x, y in corners]
    ys = [d * x + e * y + f for x, y in corners]
    return (min(xs), min(ys), max(xs), max(ys))


def patch_in_source(contract: InputContract, box: Box) -> tuple[int, int]:
    """Return the row and the column of the patch of the source that holds the centre of a box.

    >>> c = InputContract(width=64, height=32, stride=16, rows=2, cols=4, dim=8)
    >>> patch_in_source(c, (50.0, 3.0, 66.0, 19.0))
    (0, 3)
    """
    x0, y0, x1, y1 = box
    row, col = (y0 + y1) / 2 / contract.stride, (x0 + x1) / 2 / contract.stride
    # Zero comes first, because a view in a file may lead anywhere: max(0, nan) is 0.
    return int(min(max(0, row), contract.rows - 1)), int(min(max(0, col), contract.cols - 1))


def warp_back(contract: InputContract, view: Affine, energy: Map, scored: Mask) -> tuple[Map, Mask]:
    """Return the energies of a view at the patch centres of its source, and which of these it sees.

    A view sees a centre if the patch of the view that the centre falls into is scored. The
    energy there is interpolated bilinearly between the centres of scored patches; elsewhere it
    is zero.

    >>> c = InputContract(width=6, height=2, stride=2, rows=1, cols=3, dim=8)
    >>> grid, scored = np.array([[1, 2, 3]], np.float32), np.array([[True, True, False]])
    >>> values, seen = warp_back(c, (-1, 0, 6, 0, 1, 0), grid, scored)
    >>> values.tolist(), seen.tolist()
    ([[0.0, 2.0, 1.0]], [[False, True, True]])
    """
    _refuse_nonsense(energy[scored])
    # A ring of patches that are not scored stands for everything beyond the grid.
    weights = np.pad(scored.astype(np.float64), 1)
    values = np.pad(np.where(scored, energy, 0).astype(np.float64), 1)
    a, b, c, d, e, f = _inverse(view)
    x = (np.arange(contract.cols) + 0.5) * contract.stride
    y = (np.arange(contract.rows) + 0.5)[:, None] * contract.stride
    # u and v are in patches of the padded grid, whose centres are at whole numbers.
    u = ((a * x + b * y + c) / contract.stride + 0.5).clip(0, contract.cols + 1)
    v = ((d * x + e * y + f) / contract.stride + 0.5).clip(0, contract.rows + 1)
    seen = weights[_floor(v + 0.5), _floor(u + 0.5)] > 0
    left, top = _floor(u).clip(0, contract.cols), _floor(v).clip(0, contract.rows)
    across, down = u - left, v - top
    total, weight = np.zeros(u.shape), np.zeros(u.shape)
    for row, vertical in ((top, 1 - down), (top + 1, down)):
        for col, horizontal in ((left, 1 - across), (left + 1, across)):
            share = vertical * horizontal * weights[row, col]
            total += share * values[row, col]
            weight += share
    # The patch that a centre falls into has at least a quarter of the weight, so it is never 0.
    back = np.divide(total, weight, out=np.zeros(u.shape), where=seen)
    return back.astype(np.float32), seen


def entropy_weight(energy: NDArray[np.floating[Any]]) -> float:
    """Return the weight of a view, which is larger where its energies are more concentrated.

    The weight is exp(-H / TEMPERATURE), where H is the entropy of the energies' shares in their
    sum, divided by the largest value it can have. Energies that are all zero count as level
    (H = 1). So does a single energy, which is level and a peak at once, because a view that
    hardly sees anything must not outvote the others.

    >>> [round(entropy_weight(np.array(energy)), 6) for energy in ([0, 7], [1, 6], [7, 7], [7])]
    [1.0, 0.002694, 4.5e-05, 4.5e-05]
    """
    _refuse_nonsense(energy)
    p = energy.astype(np.float64)
    if p.size < 2 or not p.any():
        return math.exp(-1 / TEMPERATURE)
    p /= p.sum()
    p = p[p > 0]  # 0 log 0 is 0
    entropy = -(p * np.log(p)).sum() / math.log(energy.size)
    return math.exp(-entropy / TEMPERATURE)


def average(
    contract: InputContract, views: Sequence[tuple[Affine, Map, Mask]], scored: Mask
) -> Map:
    """Average the grids of all views, each given as an affine, its energies and its scored patches.

    The energy of a patch is the mean over the views that see it, weighted by `entropy_weight`.
    It is zero where `scored`, the mask of the identity, is not set.

    >>> c = InputContract(width=4, height=2, stride=2, rows=1, cols=2, dim=8)
    >>> grid, scored = np.array([[1, 3]], np.float32), np.array([[True, True]])
    >>> average(c, [(IDENTITY, grid, scored), ((-1, 0, 4, 0, 1, 0), grid, scored)], scored)
    array([[2., 2.]], dtype=float32)
    """
    total, weight = np.zeros(scored.shape), np.zeros(scored.shape)
    for view, energy, valid in views:
        back, seen = warp_back(contract, view, energy, valid)
        trust = entropy_weight(energy[valid])
        total += trust * back.astype(np.float64)
        weight += trust * seen
    if unseen := np.count_nonzero(scored & (weight == 0)):
        raise ScoringError(
            f"{unseen} patches are seen by no view",
            hint="the first view must be the identity",
        )
    return np.divide(total, weight, out=np.zeros(scored.shape), where=scored).astype(np.float32)


def _inverse(view: Affine) -> Affine:
    """Return the affine that maps a position in the source to its position in the view."""
    a, b, c, d, e, f = view
    det = a * e - b * d
    return (
        e / det,
        -b / det,
        (b * f - c * e) / det,
        -d / det,
        a / det,
        (c * d - a * f) / det,
    )


def _transform(image: Image.Image, view: Affine, fill: float | tuple[int, int, int]) -> Image.Image:
    """Warp an image bilinearly with Pillow.

    Pillow wants to know where pixel centres (x + 0.5) come from, which is what an `Affine` says.
    Within half a pixel of the image's edge it repeats the edge pixels and takes nothing from
    `fill`.
    """
    return image.transform(
        image.size, Image.Transform.AFFINE, view, Image.Resampling.BILINEAR, fillcolor=fill
    )


def _shares(contract: InputContract, view: Affine, mask: Mask) -> NDArray[np.float32]:
    """Return how much of each pixel of the view comes from `mask`: [rows, stride, cols, stride].

    The mask is sampled in the same way as the pixels, so a share of 1 means that nothing outside
    the mask contributes to a pixel.
    """
    shares = np.asarray(_transform(Image.fromarray(mask.astype(np.float32)), view, 0.0))
    return shares.reshape(contract.rows, contract.stride, contract.cols, contract.stride)


def _floor(position: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.floor(position).astype(np.intp)


def _refuse_nonsense(energy: NDArray[np.floating[Any]]) -> None:
    if not (np.isfinite(energy).all() and (energy >= 0).all()):
        raise ScoringError(
            "the energies of a view hold NaN, infinity or negative numbers",
            hint="check the backbone and its input",
        )
