"""Views of a picture for test-time augmentation (the paper's supplement S1): how they are drawn
and warped, which of their patches count, and how their energies become one grid again.

A view is an `Affine`: where each of its pixels comes from, continuous, pixel centres at 0.5.
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
PAIRED, OWN = 25, 5  # views shared by the query and all references; further ones of a reference
TEMPERATURE = 0.1  # of the entropy weights; ours, the paper gives none


def draw_view(rng: np.random.Generator, width: int, height: int) -> Affine:
    """A random view: flips, then shears, scale and rotation about the centre, then a shift.

    Every view takes eight numbers from the generator, and plain `random()` ones: other
    distributions may change between versions of NumPy.

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
    """The views that the query and all references share; the identity is not among them.

    >>> len(paired_views(0, 768, 768))
    25
    """
    rng = np.random.default_rng(seed)
    return tuple(draw_view(rng, width, height) for _ in range(PAIRED))


def own_views(seed: int, digest: str, width: int, height: int) -> tuple[Affine, ...]:
    """The further views of one reference, which follow from its sha256: other references,
    added or removed, never change them.

    >>> len(own_views(0, "c0ffee" * 10 + "cafe", 768, 768))
    5
    """
    rng = np.random.default_rng([seed, int(digest, 16)])
    return tuple(draw_view(rng, width, height) for _ in range(OWN))


def warp(pixels: Pixels, view: Affine, fill: tuple[int, int, int]) -> Pixels:
    """The view's pixels, bilinear; `fill` where their centres lie beyond the picture.

    >>> row = np.arange(9, dtype=np.uint8).reshape(1, 3, 3)
    >>> warp(row, (-1, 0, 3, 0, 1, 0), (0, 0, 0)).tolist()
    [[[6, 7, 8], [3, 4, 5], [0, 1, 2]]]
    """
    return np.asarray(_transform(Image.fromarray(pixels), view, fill))


def visible_patches(contract: InputContract, view: Affine, inside: Mask, wanted: Mask) -> Mask:
    """Which patches of a view count: those that take nothing from fill or beyond the canvas, and
    more than half from wanted pixels.

    `inside` (picture, not fill) and `wanted` (in the region of interest, not under the mask) are
    the source's, at the size of its canvas.

    >>> c = InputContract(width=6, height=2, stride=2, rows=1, cols=3, dim=8)
    >>> everything = np.ones((2, 6), np.bool_)
    >>> visible_patches(c, (1, 0, 0.5, 0, 1, 0), everything, everything).tolist()
    [[True, True, False]]
    """
    whole = _shares(contract, view, inside).min(axis=(1, 3)) == 1
    share = _shares(contract, view, wanted).mean(axis=(1, 3), dtype=np.float64)
    result: Mask = whole & (share > 0.5)
    return result


def box_in_source(view: Affine, box: Box) -> Box:
    """The smallest box around a view's box in its source, which it may reach beyond.

    >>> box_in_source((-1, 0, 64, 0, 1, 0), (0, 16, 8, 32))
    (56, 16, 64, 32)
    """
    a, b, c, d, e, f = view
    corners = [(x, y) for x in box[::2] for y in box[1::2]]
    xs = [a * x + b * y + c for x, y in corners]
    ys = [d * x + e * y + f for x, y in corners]
    return (min(xs), min(ys), max(xs), max(ys))


def warp_back(contract: InputContract, view: Affine, energy: Map, scored: Mask) -> tuple[Map, Mask]:
    """A view's grid at the source's patch centres, and which of these the view sees.

    Bilinear between the centres of counted patches; a centre is seen when the patch of the view
    that it falls into is counted. Zero where it is not.

    >>> c = InputContract(width=6, height=2, stride=2, rows=1, cols=3, dim=8)
    >>> grid, scored = np.array([[1, 2, 3]], np.float32), np.array([[True, True, False]])
    >>> values, seen = warp_back(c, (-1, 0, 6, 0, 1, 0), grid, scored)
    >>> values.tolist(), seen.tolist()
    ([[0.0, 2.0, 1.0]], [[False, True, True]])
    """
    _refuse_nonsense(energy[scored])
    # A ring of patches that do not count stands for everything beyond the grid.
    weights = np.pad(scored.astype(np.float64), 1)
    values = np.pad(np.where(scored, energy, 0).astype(np.float64), 1)
    a, b, c, d, e, f = _inverse(view)
    x = (np.arange(contract.cols) + 0.5) * contract.stride
    y = (np.arange(contract.rows) + 0.5)[:, None] * contract.stride
    # In patches of the padded grid, whole numbers at their centres.
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
    # The patch that a centre falls into has a quarter of the weight at least: no division by 0.
    back = np.divide(total, weight, out=np.zeros(u.shape), where=seen)
    return back.astype(np.float32), seen


def entropy_weight(energy: NDArray[np.floating[Any]]) -> float:
    """How far to trust a view with these energies: the more concentrated, the more.

    exp(-H / TEMPERATURE), where H is the entropy of the energies' shares in their sum, divided by
    the most it can be. Energies that are all zero count as level, H = 1. So does a single one,
    which is level and a peak at once: a view that hardly sees anything must not outvote others.

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
    """One grid from those of all views, each an affine, its energies and its counted patches.

    Each patch is the mean over the views that see it, by their entropy weights; zero where
    `counted`, the identity's own mask, is not set.

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
    """Where a pixel of the source is in the view."""
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
    """Pillow asks where pixel centres (x + 0.5) come from, which is what `Affine` says. Within half
    a pixel of the canvas's edge it repeats the edge pixels and takes nothing from `fill`."""
    return image.transform(
        image.size, Image.Transform.AFFINE, view, Image.Resampling.BILINEAR, fillcolor=fill
    )


def _shares(contract: InputContract, view: Affine, mask: Mask) -> NDArray[np.float32]:
    """How much of each pixel of the view comes from `mask`: [rows, stride, cols, stride].

    Sampled as the pixels are, so 1 says that nothing else has a part in a pixel.
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
